"""Vision-language models in this process, through onnxruntime-genai (extra `visil`).

An answer is forced token by token: the logits at the end of the prompt give the probability of the
first token, then the true token is appended, and so on. `get_logits` returns the last position
only. After a rewind, version 0.18 returns stale logits without an error, so every answer has a
generator.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.errors import ModelError, TextError, unknown_choice
from vcs_runtime.util.extras import require
from vcs_runtime.util.telemetry import refuse_telemetry
from vcs_visil.models.generated import Generated
from vcs_visil.models.logprobs import Forced
from vcs_visil.summaries import Image, Part

DEVICES = ("auto", "cpu", "cuda")
"""Devices of a model."""

Ids = npt.NDArray[np.int32]
_CONFIG = "genai_config.json"
# How the prompt names an image for models whose chat template takes plain text. The templates of
# all other models, such as Gemma, take a list of texts and images.
_TAGS = {
    "phi3v": "<|image_{}|>\n",
    "phi4mm": "<|image_{}|>\n",
    "qwen2_5_vl": "<|vision_start|><|image_pad|><|vision_end|>",
    "qwen3_vl": "<|vision_start|><|image_pad|><|vision_end|>",
    "fara": "<|vision_start|><|image_pad|><|vision_end|>",
    "mistral3": "[IMG]",
}


class GenAI:
    """A model of onnxruntime-genai. Answers are deterministic. Not thread-safe.

    The fingerprint is the name of its folder, and eight digits of the hash of its files.
    """

    def __init__(self, folder: Path, device: str = "auto") -> None:
        """Load the model of a folder; raise ModelError if onnxruntime-genai cannot."""
        refuse_telemetry()
        og = require("onnxruntime_genai", "visil", "a model in this process")
        if device not in DEVICES:
            raise unknown_choice("device", device, DEVICES)
        try:
            settings = json.loads((folder / _CONFIG).read_text("utf-8"))["model"]
            self._context = int(settings["context_length"])
            vision = "vision" in settings
            self._ends = _ends(folder, settings)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(
                f"{folder / _CONFIG}: not the configuration of a model: {error}"
            ) from None
        self._og = og
        with _errors(str(folder)):
            config = og.Config(str(folder))
            if device != "auto":
                config.clear_providers()
                if device == "cuda":
                    config.append_provider("cuda")
            self._model = og.Model(config)
            self._tokenizer = og.Tokenizer(self._model)
            self._processor = self._model.create_multimodal_processor() if vision else None
        template = folder / "chat_template.jinja"
        self._template = template.read_text("utf-8") if template.exists() else None
        self.fingerprint = f"genai:{folder.resolve().name}@{_digest(folder)[:8]}"

    def force(self, parts: Sequence[Part], answer: str, run: int = 0) -> Forced:
        """Return an answer's log-probabilities from the float64 logits.

        `run` is ignored.
        """
        with _errors(self.fingerprint):
            prompt, ids = self._ids(parts, answer)
            generator, length = self._start(parts, prompt, len(ids))
            values = []
            for i, token in enumerate(ids):
                values.append(float(_log_softmax(generator)[token]))
                if i + 1 < len(ids):
                    generator.append_tokens(ids[i : i + 1])
        return Forced(tuple(self._pieces(ids)), tuple(values), length)

    def next(self, parts: Sequence[Part], prefix: str = "") -> tuple[str, float]:
        """Return the likeliest token after `prefix`, and its log-probability."""
        with _errors(self.fingerprint):
            prompt, ids = self._ids(parts, prefix)
            generator, _ = self._start(parts, prompt, len(ids) + 1)
            if len(ids):
                generator.append_tokens(ids)
            values = _log_softmax(generator)
            best = int(values.argmax())
            return self._pieces(np.append(ids, np.int32(best)))[-1], float(values[best])

    def generate(self, parts: Sequence[Part], max_tokens: int, top: int, run: int = 0) -> Generated:
        """Answer greedily, with the `top` likeliest tokens at each place; `run` is ignored."""
        with _errors(self.fingerprint):
            prompt, ids = self._ids(parts, "")
            generator, length = self._start(parts, prompt, max_tokens)
            logprobs, listed = list[float](), list[tuple[tuple[str, float], ...]]()
            for _ in range(max_tokens):
                values = _log_softmax(generator)
                order = np.argsort(-values, kind="stable")[:top]
                best = order[:1].astype(np.int32)
                if int(best[0]) in self._ends:
                    break
                before = len(self._text(ids))
                texts = [self._text(np.append(ids, best.dtype.type(i)))[before:] for i in order]
                listed.append(tuple(zip(texts, values[order].tolist(), strict=True)))
                logprobs.append(float(values[best[0]]))
                ids = np.append(ids, best)
                generator.append_tokens(best)
        return Generated(
            self._text(ids), tuple(self._pieces(ids)), tuple(logprobs), tuple(listed), length
        )

    def write(self, parts: Sequence[Part], max_tokens: int) -> str:
        """Write a free answer of at most `max_tokens` tokens, greedily."""
        with _errors(self.fingerprint):
            prompt, _ = self._ids(parts, "")
            generator, length = self._start(parts, prompt, max_tokens)
            while not generator.is_done() and generator.token_count() < length + max_tokens:
                generator.generate_next_token()
            return str(self._tokenizer.decode(generator.get_sequence(0)[length:]))

    def _ids(self, parts: Sequence[Part], answer: str) -> tuple[str, Ids]:
        """Return the prompt in the chat template, and the tokens of the answer after it."""
        content: Any
        tag = _TAGS.get(self._model.type)
        if not any(isinstance(part, Image) for part in parts):
            content = "".join(part for part in parts if isinstance(part, str))
        elif self._processor is None:
            raise ModelError(f"{self.fingerprint}: the model does not accept images")
        elif tag:
            numbers = iter(range(1, len(parts) + 1))
            content = "".join(
                part if isinstance(part, str) else tag.format(next(numbers)) for part in parts
            )
        else:
            content = [
                {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"}
                for part in parts
            ]
        options = {"template_str": self._template} if self._template else {}
        prompt = self._tokenizer.apply_chat_template(
            json.dumps([{"role": "user", "content": content}]),
            add_generation_prompt=True,
            **options,
        )
        before, whole = self._tokenizer.encode(prompt), self._tokenizer.encode(prompt + answer)
        if not np.array_equal(whole[: len(before)], before):
            raise ModelError(
                f"{self.fingerprint}: the end of the prompt and the beginning of {answer!r} are one"
                " token"
            )
        return prompt, whole[len(before) :]

    def _start(self, parts: Sequence[Part], prompt: str, room: int) -> tuple[Any, int]:
        """Return a generator that has read the prompt, and the number of tokens of the prompt."""
        images = [part.data for part in parts if isinstance(part, Image)]
        if images:
            assert self._processor is not None  # otherwise `_ids` has refused the images
            inputs = self._processor(prompt, images=self._og.Images.open_bytes(*images))
            length = int(inputs["input_ids"].shape()[-1])
        else:
            inputs = self._tokenizer.encode(prompt)
            length = len(inputs)
        if length + room > self._context:
            raise TextError(
                f"{self.fingerprint}: {length} tokens of prompt and {room} more exceed the model's"
                f" {self._context}"
            )
        params = self._og.GeneratorParams(self._model)
        # One token more than needed: a full generator is done and has no logits.
        params.set_search_options(
            max_length=min(length + room + 1, self._context), do_sample=False, num_beams=1
        )
        generator = self._og.Generator(self._model, params)
        if images:
            generator.set_inputs(inputs)
        else:
            generator.append_tokens(inputs)
        return generator, length

    def _pieces(self, ids: Ids) -> list[str]:
        """Return the text of each token.

        Part of a character counts to the token that completes it.
        """
        ends = [0]
        text = ""
        for i in range(1, len(ids) + 1):
            text = self._text(ids[:i])
            ends.append(len(text))
        return [text[a:b] for a, b in pairwise(ends)]

    def _text(self, ids: Ids) -> str:
        return str(self._tokenizer.decode(ids)).rstrip("\ufffd") if len(ids) else ""


def _ends(folder: Path, settings: dict[str, Any]) -> set[int]:
    """Return the tokens that end an answer, of the configuration and of the tokenizer."""
    ends = settings.get("eos_token_id", [])
    listed = {int(end) for end in (ends if isinstance(ends, list) else [ends])}
    tokenizer = folder / "tokenizer.json"
    added = (
        json.loads(tokenizer.read_text("utf-8")).get("added_tokens", ())
        if tokenizer.exists()
        else ()
    )
    return listed | {int(token["id"]) for token in added if token.get("special")}


def _log_softmax(generator: Any) -> npt.NDArray[np.float64]:
    logits = np.asarray(generator.get_logits(), np.float64).reshape(-1)
    top = logits.max()
    return np.asarray(logits - top - np.log(np.exp(logits - top).sum()))


def _digest(folder: Path) -> str:
    """Return the hash of the names and bytes of all files: weights, tokenizer, configuration."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = (f"{path.relative_to(folder).as_posix()}\0{sha256_of(path)}\n" for path in files)
    return sha256("".join(lines).encode()).hexdigest()


@contextmanager
def _errors(name: str) -> Iterator[None]:
    # onnxruntime-genai raises RuntimeError, older versions Exception.
    try:
        yield
    except (ModelError, ValueError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise ModelError(f"{name}: {error}") from None
