"""OpenVINO in place of ONNX Runtime on the CPU: vectors, names, refusals."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.checkpoints.nv_embed import write_tiny_nv_embed
from support.checkpoints.sat import tiny_sat_tokenizer
from support.command_line import vcs
from support.drawn_texts import drawn_texts
from support.hub_sat import Substitute
from support.processes import run_python
from support.rounding import PROBABILITIES, ROUNDOFF
from support.stories import story, stripped, write_pairs
from support.tiny_bert import build_tiny_bundle
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from support.tiny_sat import build_tiny_sat_bundle
from support.waiting import HANGS_AFTER_S
from vcs_runtime import BundleError, DeviceError, Embedder, MissingExtraError, Scorer, Segmenter
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.inference.device import Device, choose_device
from vcs_runtime.inference.onnx_session import open_session

pytest.importorskip("openvino")

DEVICES = ("openvino", "openvino:fp32")
TEXTS = [story(i, 1 + i % 4) for i in range(60)] + ["a", "", "👍", "x" * 300, "man " * 200]


def closeness(precision: str) -> float:
    """The smallest cosine that a vector may have with ONNX Runtime's."""
    distance = 8 * ROUNDOFF["bf16"]  # of unit vectors
    return 1 - distance**2 / 2 if precision == "bf16" else 1 - 1e-6


@pytest.fixture(scope="module")
def scorers() -> Iterator[dict[str, Scorer]]:
    """Embedders of the default model on each device, without a memory of vectors."""
    with ExitStack() as opened:
        yield {
            device: opened.enter_context(Scorer.open("default", device, threads=2, cache_mb=0))
            for device in ("cpu", *DEVICES)
        }


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_is_refused_after_its_parent_has_opened_a_model(tiny_bundle: Path) -> None:
    """A model that was closed leaves threads for the next one, for which a child would wait."""
    script = """if True:
        import os, sys
        from vcs_runtime import DeviceError, Embedder

        def embed(embedder):
            return embedder.embed(["a man walks"]).tobytes()

        def child(work):
            if not (number := os.fork()):
                try:
                    work()
                except DeviceError as error:
                    print(error)
                sys.stdout.flush()
                os._exit(0)
            assert os.waitpid(number, 0)[1] == 0

        def opened(device="openvino"):
            with Embedder.open(sys.argv[1], device, threads=1) as embedder:
                return embed(embedder)

        child(lambda: print(len(opened())))
        expected = opened()
        child(opened)
        with Embedder.open(sys.argv[1], "openvino", threads=1) as embedder:
            child(lambda: embed(embedder))
            child(lambda: print(len(opened("cpu"))))
            assert embed(embedder) == expected
    """
    done = run_python("-c", script, tiny_bundle, timeout=HANGS_AFTER_S, check=True)
    size, opening, running, elsewhere = done.stdout.splitlines()
    for said in (opening, running):
        assert "openvino: this process was forked from one that had used OpenVINO" in said
    assert size == elsewhere == "128"


@pytest.mark.parametrize("device", DEVICES)
def test_vectors_are_those_of_onnx_runtime(scorers: dict[str, Scorer], device: str) -> None:
    """Of the embedded default, for texts of many scripts up to several windows."""
    texts = drawn_texts(6, 300)
    embedder = scorers[device].embedder
    expected, vectors = scorers["cpu"].embedder.embed(texts), embedder.embed(texts)
    precision = embedder.device.precision
    assert (expected * vectors).sum(axis=1).min() >= closeness(precision)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    if precision == "fp32":
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    else:
        assert np.abs(vectors - expected).max() > 1e-5


@pytest.mark.parametrize("device", DEVICES)
def test_a_vector_is_the_same_alone_batched_shuffled_and_repeated_to_the_bit(
    tiny_bundle: Path, device: str
) -> None:
    with Embedder.open(tiny_bundle, device, threads=2) as embedder:
        batched = embedder.embed(TEXTS)
        alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
        order = random.Random(0).choices(range(len(TEXTS)), k=150)
        shuffled = embedder.embed([TEXTS[i] for i in order])
    with Embedder.open(tiny_bundle, device, threads=1) as single:
        with_one_thread = single.embed(TEXTS)
    assert np.array_equal(batched, alone)
    assert np.array_equal(shuffled, batched[order])
    assert np.array_equal(with_one_thread, batched)


@pytest.mark.slow
def test_the_default_keeps_its_bits_alone_batched_shuffled_and_with_any_number_of_threads(
    scorers: dict[str, Scorer],
) -> None:
    """Scores through embedder and learned segmenter, and vectors of texts of several windows."""
    scorer = scorers["openvino"]
    texts = [stripped(50 + i, words).lower() for i, words in enumerate((40, 4, 5, 45, 6, 7))]
    texts += [story(10 + i, 4) for i in range(6)]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    assert sum(len(text.split()) > 256 for text in texts) == 2
    batched, vectors = scorer.score_many(pairs), scorer.embedder.embed(texts)
    assert {result.segmenter for result in batched} == {"sentencex", "boundary-en"}
    order = random.Random(0).choices(range(len(pairs)), k=6)
    assert scorer.score_many([pairs[i] for i in order]) == [batched[i] for i in order]
    assert [scorer.score(*pair) for pair in pairs] == batched
    assert all(
        np.array_equal(scorer.embedder.embed([text])[0], vectors[i]) for i, text in enumerate(texts)
    )
    with Scorer.open("default", "openvino", threads=1, cache_mb=0) as single:
        assert single.score_many(pairs) == batched
        assert np.array_equal(single.embedder.embed(texts[::-1])[::-1], vectors)


def test_every_run_has_its_turn_a_request_of_its_own_and_one_of_few_widths(
    tiny_bundle: Path, mixed_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A used request may keep its last output; two at once would take twice the memory."""
    import openvino

    create = openvino.CompiledModel.create_infer_request
    running, together = 0, 0
    runs: list[int] = []
    widths: set[int] = set()

    class Watched:
        def __init__(self, request: Any) -> None:
            self._request = request
            self._number = len(runs)
            runs.append(0)

        def infer(self, inputs: dict[str, Any]) -> Any:
            nonlocal running, together
            running += 1
            together = max(together, running)
            time.sleep(0.002)
            runs[self._number] += 1
            widths.add(inputs["input_ids"].shape[1])
            results = self._request.infer(inputs)
            running -= 1
            return results

    monkeypatch.setattr(
        openvino.CompiledModel, "create_infer_request", lambda model: Watched(create(model))
    )
    with (
        Embedder.open(tiny_bundle, "openvino", threads=1) as embedder,
        Segmenter.open(mixed_bundle, "openvino", threads=1) as segmenter,
    ):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(embedder.embed, [TEXTS[i::4] for i in range(4)]))
        assert widths == {16, 32}
        segmenter.boundary_probabilities(["a"])  # which opens the model, and tries its last token
        widths.clear()
        segmenter.boundary_probabilities([stripped(i, i) for i in range(1, 9)])
    assert together == 1
    assert len(runs) > 10
    assert max(runs) == 1
    assert len(widths) > 2
    assert {width % 16 for width in widths} == {0}


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_segmenter_is_near_onnx_runtime_and_keeps_its_bits(
    tmp_path: Path, precision: str
) -> None:
    """Also beyond 256 tokens: bf16 has no odd numbers there, and tokens are counted in floats."""
    bundle = build_tiny_sat_bundle(tmp_path, precision=precision)
    texts = [stripped(50, 60), *(stripped(i, 1 + i) for i in range(8)), "x", ""]
    with Segmenter.open(bundle, "cpu") as wanted:
        expected = wanted.boundary_probabilities(texts)
    for device in DEVICES:
        with Segmenter.open(bundle, device, threads=2) as segmenter:
            together = segmenter.boundary_probabilities(texts)
            alone = [segmenter.boundary_probabilities([text])[0] for text in texts[::-1]][::-1]
            arithmetic = segmenter.device.precision if segmenter.device else ""
        # ONNX Runtime rounds what goes into products of int8 to it, and OpenVINO does not.
        near = (
            0.15
            if precision == "int8"
            else 15 * ROUNDOFF["bf16"]
            if arithmetic == "bf16"
            else 0.005
        )
        for one, other, again in zip(expected, together, alone, strict=True):
            np.testing.assert_allclose(other, one, atol=near)
            assert np.array_equal(other, again)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_weights_in_other_precisions_run_and_stand_in_the_signature(
    tmp_path: Path, precision: str
) -> None:
    write_tiny_nv_embed(tmp_path / "checkpoint")
    of_weights = build_tiny_nv_embed_bundle(
        tmp_path, checkpoint=tmp_path / "checkpoint", precision=precision
    )
    exact = build_tiny_nv_embed_bundle(
        tmp_path / "exact", checkpoint=tmp_path / "checkpoint", precision="fp32"
    )
    texts = TEXTS[:20]
    with Embedder.open(exact, "cpu") as wanted:
        expected = wanted.embed(texts)
    for device in DEVICES:
        with Embedder.open(of_weights, device) as embedder:
            vectors = embedder.embed(texts)
            arithmetic, own = embedder.device.precision, embedder.device.precision_of("fp32")
            fields = embedder.signature_fields
        assert (expected * vectors).sum(axis=1).min() >= 0.999
        assert (f"prec:{own}" if precision == arithmetic else f"prec:{precision}+{own}") in fields


def test_a_token_beyond_the_vocabulary_is_refused(sat_bundle: Path, tmp_path: Path) -> None:
    """OpenVINO itself reads what lies behind the table."""
    tokenizer = tiny_sat_tokenizer()
    tokenizer.add_tokens(["one-more"])
    tokenizer.save(str(tmp_path / "larger.json"))
    wrong = Substitute.of(sat_bundle, tokenizer=tmp_path / "larger.json")
    with pytest.raises(
        BundleError, match=r"does not accept the token \d+ .*the model's table has \d+ rows"
    ):
        Segmenter.open(wrong, "openvino")


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    bundle = open_bundle(build_tiny_bundle(tmp_path))
    (bundle.root / "embedder/model.onnx").write_bytes(b"no protobuf")
    with pytest.raises(
        BundleError, match=r"model\.onnx: OpenVINO cannot load it: .*can't be parsed"
    ):
        Embedder.open(Bundle(bundle.root, bundle.manifest), "openvino")


def test_several_threads_use_one_embedder(tiny_bundle: Path) -> None:
    orders = [random.Random(number).sample(range(len(TEXTS)), len(TEXTS)) for number in range(4)]
    with Embedder.open(tiny_bundle, "openvino") as embedder, ThreadPoolExecutor(4) as pool:
        expected = embedder.embed(TEXTS)
        found = pool.map(lambda order: embedder.embed([TEXTS[i] for i in order]), orders)
        assert all(
            np.array_equal(vectors, expected[order])
            for vectors, order in zip(found, orders, strict=True)
        )


def is_clearly_cut(segmenter: Segmenter, texts: Sequence[str]) -> bool:
    """Whether rounding moves no probability across the threshold, which would change a score."""
    model = open_bundle("default").manifest.segmenter.model
    probabilities = np.concatenate(segmenter.boundary_probabilities(texts))
    return bool(np.abs(probabilities - model.threshold).min() > 2 * PROBABILITIES["bf16"])


@pytest.mark.parametrize("device", DEVICES)
def test_scores_and_cuts_are_near_those_of_onnx_runtime(
    scorers: dict[str, Scorer], device: str
) -> None:
    """With punctuation, and without, where the learned segmenter splits."""
    pairs = [(story(i, 5), story(40 + i, 4)) for i in range(2)]
    segmenter = scorers["cpu"].segmenter
    for i in range(10):
        bare = [text.replace(".", "").lower() for text in (story(i, 5), story(40 + i, 4))]
        if len(pairs) < 4 and is_clearly_cut(segmenter, bare):
            pairs.append((bare[0], bare[1]))
    assert len(pairs) == 4
    expected, results = scorers["cpu"].score_many(pairs), scorers[device].score_many(pairs)
    # A similarity of two unit vectors.
    near = 4 * ROUNDOFF["bf16"] if scorers[device].embedder.device.precision == "bf16" else 1e-4
    assert {result.segmenter for result in results} == {"sentencex", "boundary-en"}
    for one, other in zip(expected, results, strict=True):
        assert (one.n_ref, one.n_gen) == (other.n_ref, other.n_gen)
        assert abs(one.scores.gas - other.scores.gas) <= near
        assert abs(one.scores.las - other.scores.las) <= near


def test_the_signature_and_the_cache_name_engine_and_precision(
    tiny_bundle: Path, mixed_bundle: Path
) -> None:
    identities = set()
    best = choose_device("openvino").precision_of("fp32")
    for device, engine, precision in (
        ("cpu", "ort-cpu", "fp32"),
        ("openvino", "openvino", best),
        ("openvino:fp32", "openvino", "fp32"),
    ):
        with Scorer.open(tiny_bundle, device, segmenter=mixed_bundle) as scorer:
            fields = dict(field.partition(":")[::2] for field in scorer.signature.split("|"))
            identities.add(scorer.embedder.cache_identity)
        assert (fields["engine"], fields["prec"]) == (engine, precision)
        where = [engine] * (engine != "ort-cpu") + [
            fields[name] for name in ("isa",) if name in fields
        ]
        assert fields["cut"].split("/")[2:] == [precision, *where]
    assert len(identities) == (3 if best != "fp32" else 2)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no stack for signals")
def test_an_interrupt_is_heard_after_another_thread_has_closed_all_models(
    tiny_bundle: Path,
) -> None:
    """With AMX, OpenVINO moves the stack for signals of the thread that loads it."""
    code = """
import signal, sys, threading
from vcs_runtime import Embedder
embedder = Embedder.open(sys.argv[1], "openvino")
embedder.embed(["a man"])
def close():
    global embedder
    embedder.close()
    del embedder
thread = threading.Thread(target=close)
thread.start()
thread.join()
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("heard")
"""
    # A shell's background job ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run = run_python("-c", code, tiny_bundle)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (run.returncode, run.stdout, run.stderr) == (0, "heard\n", "")


def put_in(monkeypatch: pytest.MonkeyPatch, core: object) -> None:
    """Put a package in the place of OpenVINO."""
    package = ModuleType("openvino")
    package.Core = lambda: core  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openvino", package)


@pytest.mark.parametrize(
    ("capabilities", "precision"), [(["FP32", "BF16"], "bf16"), (["FP32"], "fp32")]
)
def test_the_processor_decides_about_the_precision(
    monkeypatch: pytest.MonkeyPatch, capabilities: list[str], precision: str
) -> None:
    core = SimpleNamespace(get_property=lambda device, name: capabilities)
    put_in(monkeypatch, core)
    assert choose_device("openvino").precision == precision
    assert choose_device("openvino:fp32").precision == "fp32"


@pytest.mark.parametrize(
    ("flags", "named"),
    [("amx_bf16 avx512_bf16", "amx"), ("AuthenticAMD avx512_bf16", "avx512"), ("avx2", "")],
)
def test_processors_that_round_bf16_differently_have_different_signatures(
    monkeypatch: pytest.MonkeyPatch, flags: str, named: str
) -> None:
    core = SimpleNamespace(get_property=lambda device, name: ["BF16"])
    put_in(monkeypatch, core)
    monkeypatch.setattr(Path, "read_text", lambda *_: f"flags\t\t: fpu {flags}\n")
    device = choose_device("openvino")
    assert device.instructions == named
    names = [device.precision_of(weights) for weights in ("fp32", "bf16", "int8")]
    assert names == ["bf16", "bf16", "int8+bf16"]
    fp32 = choose_device("openvino:fp32")
    assert (fp32.precision_of("fp32"), fp32.instructions) == ("fp32", "")


def test_a_xeon_without_amx_takes_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in(monkeypatch, SimpleNamespace(get_property=lambda device, name: ["BF16"]))
    flags = "GenuineIntel avx512_bf16"
    monkeypatch.setattr(Path, "read_text", lambda *_: flags)
    device = choose_device("openvino")
    assert (device.precision, device.instructions) == ("fp32", "")
    assert device.reason == "named: a Xeon without AMX is slower in bf16"
    flags += " amx_bf16"
    assert choose_device("openvino").instructions == "amx"


@pytest.mark.parametrize(
    ("property_name", "reported", "message"),
    [
        ("EXECUTION_DEVICES", ["GPU.0"], "OpenVINO runs the model on GPU.0, not on the CPU"),
        (
            "INFERENCE_PRECISION_HINT",
            SimpleNamespace(to_string=lambda: "f16"),
            "OpenVINO runs the model in f16, not in fp32",
        ),
    ],
)
def test_another_device_or_precision_than_was_asked_for_is_refused(
    tiny_bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    property_name: str,
    reported: Any,
    message: str,
) -> None:
    import openvino

    real = openvino.CompiledModel.get_property
    monkeypatch.setattr(
        openvino.CompiledModel,
        "get_property",
        lambda model, name: reported if name == property_name else real(model, name),
    )
    with pytest.raises(DeviceError, match=message):
        Embedder.open(tiny_bundle, "openvino:fp32")


def test_the_instructions_stand_in_the_signature_and_part_cached_vectors(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identities = set()
    for found in ("", "amx", "avx512"):
        monkeypatch.setattr(
            "vcs_runtime.inference.openvino.best_precision", lambda: ("fp32", "for the test")
        )
        device = replace(choose_device("openvino"), instructions=found)
        monkeypatch.setattr(
            "vcs_runtime.inference.tensorrt.choose_device", lambda *_, chosen=device: chosen
        )
        with Embedder.open(tiny_bundle, "openvino") as embedder:
            fields = [field for field in embedder.signature_fields if field.startswith("isa:")]
            identities.add(embedder.cache_identity)
        assert fields == ([f"isa:{found}"] if found else [])
    assert len(identities) == 3


def test_the_precision_alone_parts_cached_vectors(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the instructions are unknown, nothing else tells bf16 from fp32."""
    identities = set()
    for precision in ("fp32", "bf16"):
        monkeypatch.setattr(Device, "precision_of", lambda *_, own=precision: own)
        with Embedder.open(tiny_bundle, "openvino:fp32") as embedder:
            identities.add(embedder.cache_identity)
    assert len(identities) == 2


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_processor_that_lacks_kernels_for_bf16_is_told_to_do_without(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """OpenVINO may list bf16 for a processor where oneDNN must not use it."""
    import openvino

    def compile_model(core: Any, graph: Any, device: str, settings: Any) -> Any:
        raise RuntimeError(
            "Exception from src/core.cpp:1:\nSupported primitive descriptors list is empty"
        )

    monkeypatch.setattr(openvino.Core, "compile_model", compile_model)
    device = Device("openvino", "OpenVINO", "named", precision=precision)
    with pytest.raises(DeviceError) as error:
        open_session(tiny_bundle / "embedder/model.onnx", device)
    assert f"in {precision}: Supported primitive descriptors list is empty" in str(error.value)
    advised = str(error.value).endswith(". The device openvino:fp32 needs no bf16.")
    assert advised == (precision == "bf16")


def test_the_command_scores_without_onnx_runtime_and_prints_nothing_of_its_own(
    tiny_bundle: Path, sat_bundle: Path, tmp_path: Path
) -> None:
    rows = [{"reference": stripped(i, 4), "generated": stripped(9 + i, 4)} for i in range(2)]
    write_pairs(tmp_path / "pairs.jsonl", rows)
    command = [
        *f"score {tmp_path}/pairs.jsonl --bundle {tiny_bundle} --segmenter {sat_bundle}".split(),
        "--device",
        "openvino",
    ]
    done = vcs(*command)
    assert (done.code, done.stderr, "engine:openvino" in done.stdout) == (0, "", True), done
    # Native libraries write past Python's streams.
    without = (
        "import sys; sys.modules['onnxruntime'] = None; from vcs_runtime.cli import main; main()"
    )
    run = run_python("-c", without, *command)
    assert (run.returncode, run.stderr) == (0, "")
    assert len(run.stdout.splitlines()) == len(done.stdout.splitlines())


def test_a_package_that_is_missing_is_named(
    tiny_bundle: Path, pairs_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    for device in DEVICES:
        with pytest.raises(MissingExtraError, match=r"install `vcs-runtime\[openvino\]`"):
            Embedder.open(tiny_bundle, device)
        done = vcs("score", pairs_file, "--bundle", tiny_bundle, "--device", device)
        assert (done.code, done.stdout) == (2, "")
        assert "the device openvino needs openvino" in done.stderr


def test_a_release_that_returns_nan_is_refused(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        sys.modules, "openvino", SimpleNamespace(__version__="2025.4.1-20426-releases/2025/4")
    )
    with pytest.raises(
        MissingExtraError, match=r"needs openvino 2026\.0 or later, but 2025\.4\.1-20426"
    ):
        Embedder.open(tiny_bundle, "openvino")


@pytest.mark.parametrize(
    "name", ["openvino:0", "openvino:bf16", "openvino:", "OpenVINO", "openvinofp32"]
)
def test_other_names_are_no_devices(tiny_bundle: Path, name: str) -> None:
    with pytest.raises(
        ValueError, match=r"^device must be 'auto', 'cpu', 'openvino', 'openvino:fp32', "
    ):
        Embedder.open(tiny_bundle, name)
