"""The functions of the C API, called from Python: without a library, and through one."""

from __future__ import annotations

import ctypes
import math
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref
from pathlib import Path

import numpy as np
import pytest

import vcs_runtime
from support.capi_cases import CASES, TEXT, Host, assert_says, new_results
from support.snippets import ROOT, run_snippet
from support.stories import story
from vcs_numba import Params, Scores, score_similarity
from vcs_runtime import Scorer
from vcs_runtime.capi import Status, vcs_log_fn, vcs_params, vcs_result
from vcs_runtime.capi.binding import Flag
from vcs_runtime.capi.build import HEADER, source
from vcs_runtime.capi.calls import Model
from vcs_runtime.scoring import score_table

PAIRS = [(story(i, 2 + i % 9), story(50 + i, 1 + i % 7)) for i in range(50)]
SIMILARITY = np.random.default_rng(3).uniform(0, 1, (7, 5))


def scores_of(result: vcs_result) -> Scores:
    return Scores(*(getattr(result, name) for name in Scores._fields))


def c_texts(
    texts: list[bytes],
) -> tuple[ctypes.Array[ctypes.c_char_p], ctypes.Array[ctypes.c_size_t]]:
    n = len(texts)
    return (ctypes.c_char_p * n)(*texts), (ctypes.c_size_t * n)(*map(len, texts))


@pytest.mark.parametrize("name", CASES)
def test_every_misuse_has_its_status_and_a_message(opened: Host, name: str) -> None:
    status, message, call = CASES[name]
    assert call(opened) == status
    if status:
        assert message in opened.message()
    assert opened.score(opened.scorer, TEXT, TEXT) == Status.VCS_OK


def test_scores_are_those_of_the_scorer_to_the_bit(opened: Host, tiny_bundle: Path) -> None:
    changes = {"chunk_size": 2, "lct": 0.25, "context_cutoff": 0.5, "context_window": 3.0}
    scorer = opened.create(opened.model, **changes)
    with Scorer.open(tiny_bundle, "cpu") as python:
        for reference, generated in PAIRS:
            result = new_results(1)[0]
            texts = reference.encode(), generated.encode()
            assert (
                opened.api.vcs_score(
                    scorer, texts[0], len(texts[0]), texts[1], len(texts[1]), byref(result)
                )
                == 0
            )
            expected = python.score(
                reference, generated, chunk_size=2, params=Params(0.25, 0.5, 3.0)
            )
            assert scores_of(result) == expected.scores
            assert (result.n_ref, result.n_gen) == (expected.n_ref, expected.n_gen)
            assert opened.signature(scorer) == expected.signature
    opened.api.vcs_scorer_destroy(scorer)


def test_a_text_that_was_not_split_has_its_flag(opened: Host) -> None:
    scorer = opened.create(opened.model)
    result = new_results(1)[0]
    several, one = story(1, 4).encode(), ("dog " * 41 + "runs.").encode()
    status = opened.api.vcs_score(scorer, several, len(several), one, len(one), byref(result))
    assert status == 0
    assert result.flags & Flag.VCS_NOT_SPLIT
    opened.api.vcs_scorer_destroy(scorer)


def test_short_texts_are_scored_by_their_words(opened: Host, tiny_bundle: Path) -> None:
    scorer = opened.create(opened.model, short_form=1)
    result = new_results(1)[0]
    left, right = b"a man throws the ball", b"a woman holds the red cup"
    assert opened.api.vcs_score(scorer, left, len(left), right, len(right), byref(result)) == 0
    with Scorer.open(tiny_bundle, "cpu") as python:
        assert scores_of(result) == python.score_short(left.decode(), right.decode()).scores
    opened.api.vcs_scorer_destroy(scorer)


def test_a_bad_pair_of_a_batch_has_its_own_status_and_the_others_scores(opened: Host) -> None:
    status, results = opened.batch(TEXT, b"", TEXT, b"\xff\xfe", b"The dog.")
    assert status == Status.VCS_BAD_TEXT
    assert opened.message() == "pairs[1]: generated: the text is empty (and 1 more of 5)"
    for result, expected in zip(results, (0, 4, 0, 4, 0), strict=True):
        assert_says(result, expected)


def test_a_null_text_in_a_batch_is_its_pairs_fault(opened: Host) -> None:
    texts, lengths = c_texts([TEXT, TEXT])
    references = (ctypes.c_char_p * 2)(TEXT, None)
    results = new_results(2)
    assert (
        opened.api.vcs_score_batch(opened.scorer, references, lengths, texts, lengths, 2, results)
        == 1
    )
    assert [result.status for result in results] == [0, 1]


def test_what_stops_a_batch_is_the_status_of_all_its_pairs(opened: Host) -> None:
    texts, lengths = c_texts([TEXT, TEXT])
    for references, scorer in ((texts, opened.orphan), (None, opened.scorer)):
        results = new_results(2)
        assert (
            opened.api.vcs_score_batch(scorer, references, lengths, texts, lengths, 2, results) == 1
        )
        for result in results:
            assert_says(result, 1)


class Longer(ctypes.Structure):
    """A result of a later version of the header."""

    _fields_ = (("known", vcs_result), ("later", ctypes.c_double))


class LongerParams(ctypes.Structure):
    _fields_ = (("known", vcs_params), ("later", ctypes.c_double))


def test_of_larger_structs_the_known_part_is_used(opened: Host) -> None:
    texts, lengths = c_texts([TEXT, b"", TEXT])
    results = (Longer * 3)()
    for result in results:
        result.known.struct_size, result.later = ctypes.sizeof(Longer), 7.0
    assert (
        opened.api.vcs_score_batch(
            opened.scorer,
            texts,
            lengths,
            texts,
            lengths,
            3,
            ctypes.cast(results, ctypes.POINTER(vcs_result)),
        )
        == Status.VCS_BAD_TEXT
    )
    for result, expected in zip(results, (0, 4, 0), strict=True):
        assert_says(result.known, expected)
        assert (result.known.struct_size, result.later) == (ctypes.sizeof(Longer), 7.0)

    params = LongerParams(opened.params(chunk_size=3), 7.0)
    params.known.struct_size = ctypes.sizeof(LongerParams)
    scorer = ctypes.c_void_p()
    pointer = ctypes.cast(byref(params), ctypes.POINTER(vcs_params))
    assert opened.api.vcs_scorer_create(opened.model, pointer, byref(scorer)) == 0
    assert "|chunk:3|" in opened.signature(scorer.value)
    opened.api.vcs_scorer_destroy(scorer)


@pytest.mark.parametrize("size", [136, 140, 144, 152, 160])
def test_nothing_is_written_beyond_a_struct_of_any_version(opened: Host, size: int) -> None:
    """136 is the first version; 140 has half a margin, and 160 an unknown member."""
    texts, lengths = c_texts([TEXT, b"", TEXT])
    whole = new_results(3)
    opened.api.vcs_score_batch(opened.scorer, texts, lengths, texts, lengths, 3, whole)
    written = min(size // 8 * 8, ctypes.sizeof(vcs_result))

    def canary(n: int) -> tuple[ctypes.Array[ctypes.c_char], ctypes._Pointer[vcs_result]]:
        memory = ctypes.create_string_buffer(
            (size.to_bytes(4, sys.byteorder) + b"\xa5" * (size - 4)) * n + b"\xa5" * 64
        )
        return memory, ctypes.cast(memory, ctypes.POINTER(vcs_result))

    def expected(*results: vcs_result) -> bytes:
        structs = (
            size.to_bytes(4, sys.byteorder) + bytes(result)[4:written] + b"\xa5" * (size - written)
            for result in results
        )
        return b"".join(structs) + b"\xa5" * 64

    batch, pointer = canary(3)
    assert (
        opened.api.vcs_score_batch(opened.scorer, texts, lengths, texts, lengths, 3, pointer) == 4
    )
    assert batch.raw[:-1] == expected(*whole)
    one, pointer = canary(1)
    assert opened.api.vcs_score(opened.scorer, TEXT, len(TEXT), TEXT, len(TEXT), pointer) == 0
    assert one.raw[:-1] == expected(whole[0])
    refused, pointer = canary(3)  # the call as a whole: no scores, and the status of each
    assert opened.api.vcs_score_batch(None, texts, lengths, texts, lengths, 3, pointer) == 1
    whole[1].status = Status.VCS_INVALID_ARGUMENT
    assert refused.raw[:-1] == expected(*[whole[1]] * 3)
    matrix, aligned = np.full((2, 3), 0.5), new_results(1)[0]
    arguments = (
        matrix.ctypes.data_as(ctypes.POINTER(ctypes.c_double)),
        2,
        3,
        0.5,
        byref(opened.params()),
    )
    assert opened.api.vcs_align_f64(*arguments, byref(aligned)) == 0
    one, pointer = canary(1)
    assert opened.api.vcs_align_f64(*arguments, pointer) == 0
    assert one.raw[:-1] == expected(aligned)


def test_the_header_has_the_scores_in_the_order_of_files() -> None:
    header = (source("include") / HEADER).read_text("utf-8")
    [members] = re.findall(r"\bdouble ([\w\s,]+);\s*uint64_t flags;[^}]*\} vcs_result;", header)
    assert tuple(re.split(r",\s*", members)) == score_table.NAMES


def test_the_example_of_the_documentation_prints_what_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_snippet("docs/guide/capi.md", "ctypes")
    page = (ROOT / "docs/guide/capi.md").read_text("utf-8")
    assert f"  # {capsys.readouterr().out}```" in page


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_the_alignment_is_that_of_the_core_to_the_bit(opened: Host, kind: str) -> None:
    matrix = SIMILARITY.astype(kind.replace("f", "float"))
    number = ctypes.c_float if kind == "f32" else ctypes.c_double
    result = new_results(1)[0]
    align = getattr(opened.api, f"vcs_align_{kind}")
    pointer = matrix.ctypes.data_as(ctypes.POINTER(number))
    assert align(pointer, 7, 5, 0.75, byref(opened.params(lct=0.5)), byref(result)) == 0
    assert scores_of(result) == score_similarity(matrix, 0.75, Params(lct=0.5))
    assert (result.n_ref, result.n_gen) == (7, 5)


def test_versions_and_defaults(opened: Host) -> None:
    assert opened.api.vcs_abi_version() == 1
    assert opened.api.vcs_version() == vcs_runtime.__version__.encode()
    params = opened.params()
    expected = Params()
    assert params.struct_size == 40
    assert params.chunk_size == 1
    assert params.short_form == 0
    assert params.reserved == 0
    assert params.lct == expected.lct
    assert params.context_cutoff == expected.context_cutoff
    assert params.context_window == expected.context_window
    opened.api.vcs_params_default(None)
    assert "params is NULL" in opened.message()


def test_strings_are_cut_between_characters_and_always_ended(opened: Host) -> None:
    text = "ä" * 10
    assert (
        opened.api.vcs_model_open(f"/{text}".encode(), b"cpu", byref(ctypes.c_void_p()))
        == Status.VCS_NOT_FOUND
    )
    full = opened.message()
    assert text in full
    start = len(full.split("ä")[0].encode())
    for capacity in (1, start + 1, start + 2, start + 3, 100):
        buffer = ctypes.create_string_buffer(b"#" * 100, 101)
        assert opened.api.vcs_last_error(buffer, capacity) == len(full.encode())
        part = buffer.value.decode()  # a half character would not decode
        assert full.startswith(part)
        assert len(part.encode()) in (capacity - 1, capacity - 2, len(full.encode()))
        assert buffer.raw[capacity:] == b"#" * (100 - capacity) + b"\0"
    untouched = ctypes.create_string_buffer(b"#")
    assert opened.api.vcs_last_error(untouched, 0) == len(full.encode())
    assert untouched.value == b"#"


def test_a_signature_needs_a_scorer(opened: Host) -> None:
    for scorer, message in (
        (None, "is NULL"),
        (opened.destroyed, "freed"),
        (opened.orphan, "was closed"),
    ):
        buffer = ctypes.create_string_buffer(b"#####")
        assert opened.api.vcs_signature(scorer, buffer, 5) == 0
        assert buffer.value == b""
        assert message in opened.message()


def test_giving_back_twice_is_refused_and_nothing_is_fine(opened: Host) -> None:
    model = opened.open()
    opened.api.vcs_model_close(model)
    opened.api.vcs_model_close(model)
    assert "model was freed before" in opened.message()
    opened.api.vcs_model_close(opened.scorer)  # of another kind: it stays
    assert opened.score(opened.scorer, TEXT, TEXT) == 0
    opened.api.vcs_model_close(None)
    opened.api.vcs_scorer_destroy(None)


def test_a_messages_thread_is_its_own(opened: Host) -> None:
    opened.try_open(b"/nowhere", b"cpu")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(opened.message).result() == ""
    assert "no such folder" in opened.message()


def test_messages_go_where_the_host_wants_them(opened: Host) -> None:
    messages: list[tuple[int, bytes, int | None]] = []
    receive = vcs_log_fn(lambda level, message, user: messages.append((level, message, user)))
    opened.api.vcs_set_log(receive, 5)
    opened.api.vcs_model_close(opened.open())
    opened.api.vcs_set_log(vcs_log_fn(), None)
    opened.api.vcs_model_close(opened.open())
    [(level, message, user)] = messages
    assert (level, user) == (20, 5)
    assert message.startswith(opened.bundle + b" is open on ort-cpu")


def test_eight_threads_score_what_one_does(opened: Host) -> None:
    def score_all(seed: int) -> list[Scores]:
        scorer = opened.create(opened.model)
        scores = []
        for i in range(len(PAIRS)):
            reference, generated = (text.encode() for text in PAIRS[(i + seed) % len(PAIRS)])
            result = new_results(1)[0]
            lengths = len(reference), len(generated)
            assert (
                opened.api.vcs_score(
                    scorer, reference, lengths[0], generated, lengths[1], byref(result)
                )
                == 0
            )
            scores.append(scores_of(result))
        opened.api.vcs_scorer_destroy(scorer)
        return scores

    alone = score_all(0)
    with ThreadPoolExecutor(8) as pool:
        for seed, scores in enumerate(pool.map(score_all, range(8))):
            assert scores == [alone[(i + seed) % len(PAIRS)] for i in range(len(PAIRS))]


def test_a_model_that_is_closed_in_use_closes_after_the_call(tiny_bundle: Path) -> None:
    scorer = Scorer.open(tiny_bundle, "cpu")
    model = Model(scorer)
    text = TEXT.decode()
    with model as opened:
        model.close()
        assert math.isfinite(opened.score(text, text).vcs)
        with pytest.raises(ValueError, match="closed"), model:
            pass
    with pytest.raises(RuntimeError, match="closed"):
        scorer.score(text, "The red cup.")


def test_closing_a_model_while_threads_score_ends_their_calls_cleanly(opened: Host) -> None:
    model = opened.open()
    scorers = [opened.create(model) for _ in range(4)]
    begun = threading.Barrier(5)

    def score_until_refused(scorer: int) -> int:
        begun.wait()
        for i in range(10_000):
            text = story(i).encode()
            if status := opened.score(scorer, text, text):
                return status
        return 0

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(score_until_refused, scorer) for scorer in scorers]
        begun.wait()
        opened.api.vcs_model_close(model)
        assert {future.result() for future in running} == {Status.VCS_INVALID_ARGUMENT}
    for scorer in scorers:
        opened.api.vcs_scorer_destroy(scorer)
