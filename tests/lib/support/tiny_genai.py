"""Tiny random models in onnxruntime-genai's folder layout: one of text, one of text and images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from support.checkpoints.files import write_json

HIDDEN, HEADS, CONTEXT = 16, 2, 4096
SIZE = 8  # pixels of an image's side, as the vision model sees it
IMAGE_TOKENS = 256  # of an image, which the Gemma pipeline fixes
SPECIAL = "<pad> <eos> <user> <end> <start_of_image> <image_soft_token> <end_of_image>".split()
WORDS = "window river seven man drives sedan street a black car down the water dog runs red house"
TEMPLATE = (
    "{% for m in messages %}<user>{% if m.content is string %}{{ m.content }}{% else %}{% for p in"
    " m.content %}{% if p.type == 'image' %}<start_of_image>{% else %}{{ p.text }}{% endif %}{%"
    " endfor %}{% endif %}<end>{% endfor %}"
)


def write_model(folder: Path, *, vision: bool, seed: int = 0, context: int = CONTEXT) -> Path:
    """A model folder; returns it."""
    folder.mkdir(parents=True)
    vocabulary = _write_tokenizer(folder)
    rng = np.random.default_rng(seed)
    weights = {
        "embed": _normal(rng, vocabulary, HIDDEN),
        "places": 0.3 * _normal(rng, context, HIDDEN),
        **{
            name: _normal(rng, HIDDEN, HIDDEN) / 4
            for name in ("query", "key", "value", "out", "inner")
        },
        "head": _normal(rng, HIDDEN, vocabulary),
        "pixels": _normal(rng, 3 * SIZE * SIZE, IMAGE_TOKENS * HIDDEN) / 8,
    }
    model: dict[str, Any] = {
        "type": "gemma3" if vision else "llama",
        "bos_token_id": 1,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "vocab_size": vocabulary,
        "context_length": context,
        "decoder": {
            "filename": "decoder.onnx",
            "hidden_size": HIDDEN,
            "head_size": HIDDEN // HEADS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            "num_hidden_layers": 1,
            "inputs": {
                ("inputs_embeds" if vision else "input_ids"): (
                    "inputs_embeds" if vision else "input_ids"
                ),
                "attention_mask": "attention_mask",
                "past_key_names": "past_key_values.%d.key",
                "past_value_names": "past_key_values.%d.value",
            },
            "outputs": {
                "logits": "logits",
                "present_key_names": "present.%d.key",
                "present_value_names": "present.%d.value",
            },
            "session_options": {"provider_options": []},
        },
    }
    _decoder(weights, folder / "decoder.onnx", from_ids=not vision)
    if vision:
        _vision(weights, folder / "vision.onnx")
        _embedding(weights, folder / "embedding.onnx")
        model["vision"] = {
            "filename": "vision.onnx",
            "config_filename": "processor_config.json",
            "inputs": {"pixel_values": "pixel_values"},
            "outputs": {"image_features": "image_features"},
        }
        model["embedding"] = {
            "filename": "embedding.onnx",
            "inputs": {"input_ids": "input_ids", "image_features": "image_features"},
            "outputs": {"inputs_embeds": "inputs_embeds"},
        }
        steps = [
            ("DecodeImage", {"color_space": "RGB"}),
            (
                "Resize",
                {"height": SIZE, "width": SIZE, "keep_aspect_ratio": 0, "interpolation": "LINEAR"},
            ),
            ("Rescale", {"rescale_factor": 1 / 255}),
            ("Permute3D", {"dims": [2, 0, 1]}),
        ]
        transforms = [
            {"operation": {"name": kind.lower(), "type": kind, "attrs": attrs}}
            for kind, attrs in steps
        ]
        data = {"processor": {"name": "gemma_3_image_processing", "transforms": transforms}}
        write_json(folder / "processor_config.json", data)
    search = {"max_length": context, "do_sample": False, "past_present_share_buffer": False}
    write_json(folder / "genai_config.json", {"model": model, "search": search})
    return folder


def word_tokenizer(special: list[str]) -> Tokenizer:
    """A byte-level BPE that has learnt some merges of `WORDS`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=len(special) + 256 + 24,
        special_tokens=special,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([WORDS] * 3, trainer)
    return tokenizer


def _write_tokenizer(folder: Path) -> int:
    tokenizer = word_tokenizer(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "GPT2Tokenizer",
        "add_prefix_space": False,
        "bos_token": "<eos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "chat_template": TEMPLATE,
    }
    write_json(folder / "tokenizer_config.json", settings)
    return tokenizer.get_vocab_size()


class _Graph:
    """Nodes of one graph."""

    def __init__(self) -> None:
        self.inputs: list[ir.Value] = []
        self.nodes: list[ir.Node] = []
        self.constants: dict[str, ir.Value] = {}

    def input(
        self, name: str, shape: Sequence[str | int] | None, kind: ir.DataType = ir.DataType.FLOAT
    ) -> ir.Value:
        known = ir.Shape(shape) if shape is not None else None
        self.inputs.append(ir.Value(name=name, shape=known, type=ir.TensorType(kind)))
        return self.inputs[-1]

    def op(self, kind: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        output = ir.Value(name=f"{kind}_{len(self.nodes)}")
        self.nodes.append(ir.node(kind, inputs, attributes, outputs=[output]))
        return output

    def constant(self, name: str, array: NDArray[Any]) -> ir.Value:
        if name not in self.constants:
            tensor = ir.tensor(array, name=name)
            self.constants[name] = ir.Value(
                name=name,
                shape=ir.Shape(array.shape),
                type=ir.TensorType(tensor.dtype),
                const_value=tensor,
            )
        return self.constants[name]

    def ints(self, *values: int) -> ir.Value:
        return self.constant("ints_" + "_".join(map(str, values)), np.array(values, np.int64))

    def integer(self, value: int) -> ir.Value:
        return self.constant(f"int_{value}", np.array(value, np.int64))

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        return self.op("Gather", self.op("Shape", value), self.integer(axis))

    def save(
        self, path: Path, outputs: Sequence[tuple[ir.Value, str, Sequence[str | int]]]
    ) -> None:
        for value, name, shape in outputs:
            value.name = name
            value.shape = ir.Shape(shape)
            value.type = ir.TensorType(ir.DataType.FLOAT)
        graph = ir.Graph(
            self.inputs,
            [value for value, _, _ in outputs],
            nodes=self.nodes,
            initializers=list(self.constants.values()),
            opset_imports={"": 17},
            name="tiny",
        )
        ir.save(ir.Model(graph, ir_version=8), path)


def _decoder(weights: dict[str, NDArray[np.float32]], path: Path, *, from_ids: bool) -> None:
    """One layer of causal attention with a cache, and places that are added to the embeddings."""
    g = _Graph()
    if from_ids:
        ids = g.input("input_ids", ["batch", "new"], ir.DataType.INT64)
        x = g.op("Gather", g.constant("embed", weights["embed"]), ids)
    else:
        x = g.input("inputs_embeds", ["batch", "new", HIDDEN])
    mask = g.input("attention_mask", ["batch", "total"], ir.DataType.INT64)
    cached = [
        g.input(f"past_key_values.0.{kind}", ["batch", HEADS, "past", HIDDEN // HEADS])
        for kind in ("key", "value")
    ]
    total, new = g.size(mask, 1), g.size(x, 1)
    places = g.op("Range", g.op("Sub", total, new), total, g.integer(1))
    x = g.op("Add", x, g.op("Gather", g.constant("places", weights["places"]), places))

    def heads(name: str) -> ir.Value:
        y = g.op("MatMul", x, g.constant(name, weights[name]))
        return g.op(
            "Transpose",
            g.op("Reshape", y, g.ints(0, -1, HEADS, HIDDEN // HEADS)),
            perm=[0, 2, 1, 3],
        )

    keys, values = (
        g.op("Concat", past, heads(name), axis=2)
        for past, name in zip(cached, ("key", "value"), strict=True)
    )
    scores = g.op("MatMul", heads("query"), g.op("Transpose", keys, perm=[0, 1, 3, 2]))
    seen = g.op(
        "LessOrEqual",
        g.op("Range", g.integer(0), total, g.integer(1)),
        g.op("Unsqueeze", places, g.ints(1)),
    )
    scores = g.op("Where", seen, scores, g.constant("hidden", np.array(-1e9, np.float32)))
    mixed = g.op(
        "Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), values), perm=[0, 2, 1, 3]
    )
    mixed = g.op("Reshape", mixed, g.ints(0, -1, HIDDEN))
    x = g.op("Add", x, g.op("MatMul", mixed, g.constant("out", weights["out"])))
    x = g.op("Tanh", g.op("MatMul", x, g.constant("inner", weights["inner"])))
    logits = g.op("MatMul", x, g.constant("head", weights["head"]))
    cache = ["batch", HEADS, "total", HIDDEN // HEADS]
    vocabulary = weights["head"].shape[1]
    g.save(
        path,
        [
            (logits, "logits", ["batch", "new", vocabulary]),
            (keys, "present.0.key", cache),
            (values, "present.0.value", cache),
        ],
    )


def _vision(weights: dict[str, NDArray[np.float32]], path: Path) -> None:
    g = _Graph()
    pixels = g.input("pixel_values", ["images", 3, SIZE, SIZE])
    flat = g.op("Reshape", pixels, g.ints(0, 3 * SIZE * SIZE))
    features = g.op("MatMul", flat, g.constant("pixels", weights["pixels"]))
    features = g.op("Reshape", features, g.ints(-1, IMAGE_TOKENS, HIDDEN))
    g.save(path, [(features, "image_features", ["images", IMAGE_TOKENS, HIDDEN])])


def _embedding(weights: dict[str, NDArray[np.float32]], path: Path) -> None:
    """The features of the images take the places of the soft tokens."""
    g = _Graph()
    ids = g.input("input_ids", ["batch", "new"], ir.DataType.INT64)
    features = g.input("image_features", None)  # without images its rank is another
    x = g.op("Gather", g.constant("embed", weights["embed"]), ids)
    soft = g.op("Equal", ids, g.integer(SPECIAL.index("<image_soft_token>")))
    at = g.op("Transpose", g.op("NonZero", soft), perm=[1, 0])
    count = g.op("Unsqueeze", g.size(at, 0), g.ints(0))
    rows = g.op("Slice", g.op("Reshape", features, g.ints(-1, HIDDEN)), g.ints(0), count, g.ints(0))
    g.save(path, [(g.op("ScatterND", x, at, rows), "inputs_embeds", ["batch", "new", HIDDEN])])


def _normal(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return rng.standard_normal(shape).astype(np.float32)
