"""onnxruntime-genai on tiny random models, against plain ONNX Runtime and NumPy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer

from support.tiny_genai import HEADS, HIDDEN, IMAGE_TOKENS
from vcs_runtime.errors import ModelError, TextError
from vcs_visil import Image, Summary, Video, probe, visil
from vcs_visil.models.genai import GenAI
from vcs_visil.summaries import Part

ANSWER = "man drives sedan 7é"  # words of one token and of several, and a character of two


def run(folder: Path, name: str, **inputs: NDArray[Any]) -> NDArray[np.float32]:
    session = ort.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, inputs)[0])


def expected(folder: Path, parts: Sequence[Part], answer: str) -> tuple[list[float], int]:
    """The answer's log-probabilities from one pass, and the prompt's length."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    soft = "\n\n<start_of_image>" + "<image_soft_token>" * IMAGE_TOKENS + "<end_of_image>\n\n"
    prompt = "<user>" + "".join(part if isinstance(part, str) else soft for part in parts) + "<end>"
    before = tokenizer.encode(prompt).ids
    ids = np.array([[*before, *tokenizer.encode(answer).ids]], np.int64)
    inputs: dict[str, Any] = {"input_ids": ids}
    images = [pixels(part) for part in parts if isinstance(part, Image)]
    if (folder / "vision.onnx").exists():
        features = (
            run(folder, "vision", pixel_values=np.stack(images))
            if images
            else np.zeros((0, HIDDEN), np.float32)
        )
        inputs = {"inputs_embeds": run(folder, "embedding", input_ids=ids, image_features=features)}
    empty = np.zeros((1, HEADS, 0, HIDDEN // HEADS), np.float32)
    cache = {f"past_key_values.0.{kind}": empty for kind in ("key", "value")}
    logits = run(folder, "decoder", attention_mask=np.ones_like(ids), **inputs, **cache)[0].astype(
        np.float64
    )
    logs = (
        logits
        - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - logits.max(-1, keepdims=True)
    )
    places = range(len(before), ids.shape[1])
    return [float(logs[at - 1, ids[0, at]]) for at in places], len(before)


def pixels(image: Image) -> NDArray[np.float32]:
    """The pixels of one of `pictures`, as large as the model's input: (3, 8, 8), 0 to 1."""
    import zlib

    data = zlib.decompress(
        image.data[41:-16]
    )  # behind signature, IHDR and IDAT's head; before its CRC and IEND
    rows = np.frombuffer(data, np.uint8).reshape(8, 25)[:, 1:]
    return np.asarray(rows.reshape(8, 8, 3).transpose(2, 0, 1) / 255, np.float32)


@pytest.mark.parametrize("kind", ["text", "vision", "1", "3"])
def test_forced_answers_equal_one_pass_of_plain_onnx_runtime(
    text_model: Path, vision_model: Path, pictures: list[Image], kind: str
) -> None:
    folder = text_model if kind == "text" else vision_model
    parts: list[Part] = ["Find the words. "]
    for i in range(int(kind) if kind.isdigit() else 0):
        parts += [f"[KEYFRAME{i + 1}] ", pictures[i]]
    parts.append(" A [MASK] in the street.")
    values, length = expected(folder, parts, ANSWER)
    forced = GenAI(folder).force(parts, ANSWER)
    assert forced.logprobs == pytest.approx(values, abs=1e-5)
    assert "".join(forced.tokens) == ANSWER
    assert len(forced.tokens) > 4
    assert forced.prompt_tokens == length


def test_the_likeliest_token_is_that_of_the_logits(text_model: Path) -> None:
    model = GenAI(text_model)
    token, value = model.next(["Name the river."])
    [of_token], _ = expected(text_model, ["Name the river."], token)
    assert value == pytest.approx(of_token, abs=1e-5)
    assert all(
        model.force(["Name the river."], other).logprobs[0] <= value
        for other in ("man", "sedan", "the", "a")
    )


def test_tiny_models_pass_the_probe(text_model: Path, vision_model: Path) -> None:
    assert all(check.passed for check in probe(GenAI(vision_model)))
    assert all(check.passed for check in probe(GenAI(text_model), images=False))


def test_no_answer_depends_on_the_ones_before(text_model: Path) -> None:
    prompts = ["Write a word.", "Name the street."]
    answers = ["man drives", "sedan", "river seven water"]
    alone = {(p, a): GenAI(text_model).force([p], a) for p in prompts for a in answers}
    model = GenAI(text_model)
    for p, a in [*alone, *reversed(alone), *alone]:
        assert model.force([p], a) == alone[p, a]


def test_a_generator_that_is_rewound_gives_stale_logits(text_model: Path) -> None:
    """Why every answer has its own generator, and rewinding one to the prompt's end is wrong."""
    import onnxruntime_genai as og

    model = og.Model(str(text_model))
    tokenizer = og.Tokenizer(model)
    prompt, answer = tokenizer.encode("Write a word."), tokenizer.encode("river seven water")
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(max_length=100)
    generators = [og.Generator(model, parameters) for _ in range(2)]
    for generator in generators:
        generator.append_tokens(prompt)
    right, again = (np.array(generator.get_logits()) for generator in generators)
    np.testing.assert_array_equal(again, right)
    generators[0].append_tokens(answer)
    generators[0].get_logits()
    generators[0].rewind_to(len(prompt))
    assert np.abs(np.array(generators[0].get_logits()) - right).max() > 1


def test_the_score_of_a_summary_with_images(vision_model: Path, pictures: list[Image]) -> None:
    caption, keywords = "A man drives a black sedan down the street.", ["man", "sedan", "street"]
    video = Video(pictures)
    summaries = [
        Summary("A car.", name="text"),
        Summary("A car.", pictures[:1], "one"),
        Summary("[KEYFRAME1] then [KEYFRAME2].", pictures[:3], "three"),
        Video(pictures, "itself"),
    ]
    model = GenAI(vision_model)
    results = {result.name: result for result in visil(video, caption, keywords, summaries, model)}
    prompt: list[Part] = [
        "Some words of a text that describes a video are hidden. Find them.\n\nWhat is given: a"
        " short summary of the video: A car.\n\nThe description, with [MASK] for each hidden word:"
        " A [MASK] drives a black [MASK] down the [MASK].\n\nWrite the hidden words in the order of"
        " the masks, one word a mask, with one space between words. Write nothing else: no"
        " explanation, no commas, no quotes."
    ]
    values, _ = expected(vision_model, prompt, "man sedan street")
    assert results["text"].summary.log_p == pytest.approx(sum(values), abs=1e-4)
    assert results["itself"].visil == 0.0
    assert len({result.visil for result in results.values()}) == 4
    text, one, three = (results[name].tokens for name in ("text", "one", "three"))
    assert text is not None
    assert one == text + IMAGE_TOKENS + 6  # a start, an end and four line breaks
    assert three is not None
    assert three > 3 * IMAGE_TOKENS


def test_what_the_model_cannot_take_is_refused(
    text_model: Path, pictures: list[Image], tmp_path: Path
) -> None:
    model = GenAI(text_model)
    with pytest.raises(ModelError, match="does not accept images"):
        model.force([pictures[0], "Which?"], "man")
    with pytest.raises(TextError, match="exceed the model's 4096"):
        model.force(["river " * 4100], "man")
    with pytest.raises(ModelError, match="not the configuration of a model"):
        GenAI(tmp_path)
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": {"context_length": 10}}))
    with pytest.raises(ModelError, match=str(tmp_path)):
        GenAI(tmp_path)


def test_an_image_that_is_none_is_refused(vision_model: Path) -> None:
    broken = Image(Image.from_pixels(np.zeros((8, 8, 3), np.uint8)).data[:40])
    with pytest.raises(ModelError, match="genai:vision@"):
        GenAI(vision_model).force([broken, "Which?"], "man")


def test_the_fingerprint_is_of_every_byte(
    text_model: Path, vision_model: Path, tmp_path: Path
) -> None:
    first, second = GenAI(text_model).fingerprint, GenAI(vision_model).fingerprint
    assert first.startswith("genai:text@")
    assert first == GenAI(text_model).fingerprint
    assert first.split("@")[1] != second.split("@")[1]
    shutil.copytree(text_model, tmp_path / "text")
    weights = bytearray((tmp_path / "text" / "decoder.onnx").read_bytes())
    weights[len(weights) // 2] ^= 1
    (tmp_path / "text" / "decoder.onnx").write_bytes(weights)
    assert GenAI(tmp_path / "text").fingerprint != first


def test_an_answer_whose_first_letters_join_the_prompt_is_refused(
    text_model: Path, tmp_path: Path
) -> None:
    """Where a template ends in text, the border before the answer may fall into a token."""
    shutil.copytree(text_model, tmp_path / "bare")
    (tmp_path / "bare" / "chat_template.jinja").write_text("{{ messages[0].content }}")
    model = GenAI(tmp_path / "bare")
    assert model.force(["A window("], "seven").prompt_tokens
    with pytest.raises(
        ModelError, match="the end of the prompt and the beginning of 'ndow' are one token"
    ):
        model.force(["A wi"], "ndow")


@pytest.mark.slow
@pytest.mark.toolchain
def test_nothing_is_looked_up_on_a_network(text_model: Path, tmp_path: Path) -> None:
    """ONNX Runtime and onnxruntime-genai ask for no address: both would report home after 8 s."""
    source, library = tmp_path / "spy.c", tmp_path / "spy.so"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n#include <netdb.h>\nint"
        " getaddrinfo(const char *n, const char *s, const struct addrinfo *h, struct addrinfo **r)"
        ' {\n  fprintf(stderr, "LOOKED UP %s\\n", n ? n : ""); return EAI_FAIL; }\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    scripts = (
        (
            "from vcs_visil.models.genai import GenAI; GenAI(Path(sys.argv[1])).force(['Write.'],"
            " 'man')"
        ),
        (
            "from vcs_runtime.inference.device import import_onnxruntime as get;"
            " get().InferenceSession(sys.argv[1] + '/decoder.onnx')"
        ),
    )
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"import sys, time; from pathlib import Path; {script}; time.sleep(12)",
                str(text_model),
            ],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for script in scripts
    ]
    for process in processes:
        _, said = process.communicate()
        assert process.returncode == 0, said
        assert "LOOKED UP" not in said
