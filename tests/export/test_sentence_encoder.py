"""From any encoder's folder to a bundle: families, poolings, refusals, the way through optimum."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from support.checkpoints.bert import VOCABULARY, WORDS, tiny_tokenizer, write_tiny_checkpoint
from support.checkpoints.files import write_json
from support.embedders import spec_of, vectors_of
from support.numpy_bert import encode, load, transform
from support.tiny_bert import token_ids
from support.tiny_sentence import write_sentence_files, write_tiny_family
from vcs_export.checkpoint.sentence_folder import read_sentence_folder
from vcs_export.checks.verify import verify_embedder
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.families.build import MODEL_FILE, WEIGHTS_FILE, Build, EmbedderOptions
from vcs_export.families.optimum_route import OPSET, append_sentence
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.graph.builder import GraphBuilder
from vcs_export.graph.encoder import buckets
from vcs_export.graph.nodes import Graph
from vcs_export.write import BundleInfo
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli import cli

TEXTS = [
    "the dog runs",
    "a man, a woman and two children walk slowly over the bridge.",
    "7",
    "next the door opens",
]


def build(
    checkpoint: Path, target: Path, optimum_python: Path | None = None, **options: Any
) -> Path:
    info = BundleInfo("tiny", "CC0-1.0", "random")
    described = Build(checkpoint, target, info)
    return build_sentence_bundle(
        described, EmbedderOptions(**options), optimum_python=optimum_python
    )


def hidden(folder: Path, ids: list[int]) -> NDArray[np.float64]:
    config, tensors = load(folder, "bert.")
    return transform(
        tensors, config, ids, list(range(len(ids))), np.ones((len(ids), len(ids)), bool)
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_tiny_checkpoint(tmp_path / "checkpoint")


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta", "mpnet", "distilbert"])
def test_a_family_computes_what_the_same_numbers_give_in_bert(tmp_path: Path, kind: str) -> None:
    folder = (
        write_tiny_family(tmp_path, kind)
        if kind != "bert"
        else write_tiny_checkpoint(tmp_path / "bert")
    )
    bundle = build(folder, tmp_path / "bundle")
    want = np.stack([encode(tmp_path / "bert", token_ids(text)) for text in TEXTS])
    np.testing.assert_allclose(vectors_of(bundle, TEXTS), want, rtol=0, atol=2e-6)
    assert all(check.holds for check in verify_embedder(open_bundle(bundle)))
    assert spec_of(bundle).max_tokens == 32


def test_a_family_keeps_the_prefix_of_a_model_with_a_head(tmp_path: Path) -> None:
    folder = write_tiny_family(tmp_path, "distilbert")
    before = vectors_of(build(folder, tmp_path / "a"), TEXTS)
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {f"distilbert.{name}": tensor for name, tensor in tensors.items()},
        folder / "model.safetensors",
    )
    np.testing.assert_array_equal(vectors_of(build(folder, tmp_path / "b"), TEXTS), before)


@pytest.mark.parametrize(
    ("distance", "row"),
    [
        (0, 0),
        (1, 17),
        (-1, 1),
        (-7, 7),
        (-8, 8),
        (-11, 8),
        (-12, 9),
        (-16, 10),
        (-32, 12),
        (64, 30),
        (-90, 14),
        (-91, 15),
        (127, 31),
        (4000, 31),
    ],
)
def test_distances_of_mpnet_fall_into_their_rows(distance: int, row: int) -> None:
    assert buckets(np.array([distance])).tolist() == [row]


def test_a_bias_for_distances_changes_vectors(tmp_path: Path) -> None:
    folder = write_tiny_family(tmp_path, "mpnet")
    before = vectors_of(build(folder, tmp_path / "a"), TEXTS)
    tensors = load_file(folder / "model.safetensors")
    tensors["encoder.relative_attention_bias.weight"] = (
        np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    )
    save_file(tensors, folder / "model.safetensors")
    assert np.abs(vectors_of(build(folder, tmp_path / "b"), TEXTS) - before).max() > 1e-2


def test_a_long_text_is_cut_as_the_tokenizer_cuts_it(checkpoint: Path, tmp_path: Path) -> None:
    bundle = build(checkpoint, tmp_path / "bundle", long_text="truncate_text")
    text = " ".join(WORDS[:60])
    tokenizer = tiny_tokenizer()
    tokenizer.no_padding()
    tokenizer.enable_truncation(spec_of(bundle).max_tokens)
    ids = list(tokenizer.encode(text).ids)
    assert (len(ids), ids[-1]) == (32, VOCABULARY["[SEP]"])
    np.testing.assert_allclose(
        vectors_of(bundle, [text])[0], encode(checkpoint, ids), rtol=0, atol=2e-6
    )
    with pytest.raises(
        ExportError, match="long_text must be one of window_mean, truncate_text, error"
    ):
        build(checkpoint, tmp_path / "other", long_text="truncate")


def test_the_longest_text_may_be_padded_beyond_the_last_position(tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path / "checkpoint", max_position=31, max_tokens=31)
    text = " ".join(["dog"] * 29)
    [vector] = vectors_of(build(folder, tmp_path / "bundle"), [text])
    np.testing.assert_allclose(vector, encode(folder, token_ids(text)), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("pooling", "pool"),
    [
        ("pooling_mode_cls_token", lambda x: x[0]),
        ("pooling_mode_max_tokens", lambda x: x.max(axis=0)),
        ("pooling_mode_lasttoken", lambda x: x[-1]),
    ],
)
def test_poolings(checkpoint: Path, tmp_path: Path, pooling: str, pool: Any) -> None:
    write_sentence_files(checkpoint, 32, pooling=pooling)
    want = np.stack([pool(hidden(checkpoint, token_ids(text))) for text in TEXTS])
    want /= np.linalg.norm(want, axis=1, keepdims=True)
    bundle = build(checkpoint, tmp_path / "bundle")
    np.testing.assert_allclose(vectors_of(bundle, TEXTS), want, rtol=0, atol=5e-6)
    assert all(check.holds for check in verify_embedder(open_bundle(bundle)))


def test_the_newer_spelling_of_a_pooling(checkpoint: Path) -> None:
    data = {"embedding_dimension": 32, "pooling_mode": "cls"}
    write_json(checkpoint / "1_Pooling/config.json", data)
    assert read_sentence_folder(checkpoint).pooling == "cls"


@pytest.mark.parametrize("modules", [("Dense",), ("Dense", "Normalize"), ("Normalize", "Dense")])
def test_dense_layers_in_their_order(
    checkpoint: Path, tmp_path: Path, modules: tuple[str, ...]
) -> None:
    rng = np.random.default_rng(1)
    weight, bias = (rng.normal(size=shape).astype(np.float32) for shape in ((20, 32), (20,)))
    write_sentence_files(checkpoint, 32, modules=modules, dense=(weight, bias))
    bundle = build(checkpoint, tmp_path / "bundle")
    want = []
    for text in TEXTS:
        mean = hidden(checkpoint, token_ids(text)).mean(axis=0)
        mean = mean / np.linalg.norm(mean) if modules[0] == "Normalize" else mean
        vector = np.tanh(weight @ mean + bias)
        want.append(vector / np.linalg.norm(vector))
    np.testing.assert_allclose(vectors_of(bundle, TEXTS), np.stack(want), rtol=0, atol=5e-6)
    assert spec_of(bundle).dimension == 20


def test_a_default_prompt_is_put_before_texts(checkpoint: Path, tmp_path: Path) -> None:
    plain = build(checkpoint, tmp_path / "plain")
    write_sentence_files(checkpoint, 32, prompt="next: ")
    bundle = build(checkpoint, tmp_path / "bundle")
    assert spec_of(bundle).instruction == "next: "
    np.testing.assert_array_equal(
        vectors_of(bundle, TEXTS), vectors_of(plain, [f"next: {text}" for text in TEXTS])
    )


@pytest.mark.parametrize(
    ("max_tokens", "said", "most"),
    [(32, 16, 32), (None, 16, 16), (None, 1e30, 64), (None, None, 64)],
)
def test_the_window_is_what_the_folder_says(
    checkpoint: Path, tmp_path: Path, max_tokens: int | None, said: float | None, most: int
) -> None:
    write_sentence_files(checkpoint, 32, max_tokens=max_tokens)
    write_json(checkpoint / "tokenizer_config.json", {"model_max_length": said})
    assert spec_of(build(checkpoint, tmp_path / "bundle")).max_tokens == most


MEAN = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}


@pytest.mark.parametrize(
    ("file", "data", "message"),
    [
        ("config.json", {}, "model_type must be a string"),
        ("1_Pooling/config.json", 3, "must be a JSON object"),
        ("sentence_bert_config.json", [], "must be a JSON object"),
        ("config_sentence_transformers.json", [], "must be a JSON object"),
        (
            "1_Pooling/config.json",
            {**MEAN, "pooling_mode_cls_token": True},
            "mean_tokens with pooling_mode_cls",
        ),
        ("1_Pooling/config.json", {"word_embedding_dimension": 32}, "no pooling"),
        (
            "1_Pooling/config.json",
            {"word_embedding_dimension": 32, "pooling_mode_weightedmean_tokens": True},
            "pooling_mode_weightedmean_tokens is not supported",
        ),
        (
            "1_Pooling/config.json",
            {"embedding_dimension": 32, "pooling_mode": "weightedmean"},
            "weightedmean",
        ),
        ("1_Pooling/config.json", {**MEAN, "word_embedding_dimension": 33}, "33 numbers"),
        ("modules.json", {}, "a list of modules"),
        (
            "modules.json",
            [{"type": "a.Transformer", "path": ""}, {"type": "a.WordWeights", "path": "1"}],
            "WordWeights are not supported",
        ),
        (
            "modules.json",
            [{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "../x"}],
            "'../x' is not a folder",
        ),
        (
            "modules.json",
            [{"type": "a.Transformer", "path": "0_T"}, {"type": "a.Pooling", "path": "1"}],
            "'0_T' of Transformer",
        ),
        (
            "sentence_bert_config.json",
            {"max_seq_length": 32, "do_lower_case": "no"},
            "do_lower_case must be",
        ),
        (
            "sentence_bert_config.json",
            {"query_expansion": {"length": 8}},
            "query_expansion {'length': 8}",
        ),
        (
            "sentence_bert_config.json",
            {"module_output_name": "sentence_embedding"},
            "'sentence_embedding'",
        ),
        (
            "config_sentence_transformers.json",
            {"truncate_dim": 0},
            "truncate_dim must be positive, not 0",
        ),
        ("sentence_bert_config.json", {"max_seq_length": 65}, "65 is more than the 64 positions"),
        (
            "config_sentence_transformers.json",
            {"default_prompt_name": "x"},
            "default_prompt_name 'x'",
        ),
    ],
)
def test_what_a_graph_would_not_do_is_refused_by_name(
    checkpoint: Path, tmp_path: Path, file: str, data: Any, message: str
) -> None:
    write_json(checkpoint / file, data)
    with pytest.raises(CheckpointError, match=message):
        build(checkpoint, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_a_prompt_that_is_not_pooled_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    write_json(checkpoint / "1_Pooling/config.json", {**MEAN, "include_prompt": False})
    build(checkpoint, tmp_path / "without")
    data = {"prompts": {"query": "q: "}, "default_prompt_name": "query"}
    write_json(checkpoint / "config_sentence_transformers.json", data)
    with pytest.raises(CheckpointError, match="include_prompt False is not supported"):
        build(checkpoint, tmp_path / "bundle")


def test_texts_are_lower_cased_by_the_tokenizer_or_not_at_all(
    checkpoint: Path, tmp_path: Path
) -> None:
    data = {"max_seq_length": 32, "do_lower_case": True}
    write_json(checkpoint / "sentence_bert_config.json", data)
    vectors = vectors_of(build(checkpoint, tmp_path / "bundle"), ["The Dog", "the dog"])
    np.testing.assert_array_equal(vectors[0], vectors[1])
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text("utf-8"))
    write_json(checkpoint / "tokenizer.json", {**tokenizer, "normalizer": None})
    with pytest.raises(
        CheckpointError, match=r"do_lower_case True.*tokenizer\.json does not lower-case"
    ):
        build(checkpoint, tmp_path / "other")


def test_another_models_tokenizer_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text("utf-8"))
    count = len(tokenizer["model"]["vocab"])
    tokenizer["model"]["vocab"]["further"] = count
    write_json(checkpoint / "tokenizer.json", tokenizer)
    message = rf"tokenizer\.json: it has the token id {count}, but the model has {count}"
    with pytest.raises(CheckpointError, match=message):
        build(checkpoint, tmp_path / "bundle")


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("mpnet", "relative_attention_num_buckets", 64),
        ("mpnet", "pad_token_id", 0),
        ("xlm-roberta", "position_embedding_type", "relative_key"),
        ("distilbert", "activation", "relu"),
    ],
)
def test_settings_that_a_family_does_not_implement_are_refused(
    tmp_path: Path, kind: str, key: str, value: Any
) -> None:
    folder = write_tiny_family(tmp_path, kind)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    write_json(folder / "config.json", {**config, key: value})
    with pytest.raises(CheckpointError, match=rf"config\.json: .*{value!r} is not supported"):
        build(folder, tmp_path / "bundle")


def test_a_dense_layer_that_does_not_fit_is_named(checkpoint: Path, tmp_path: Path) -> None:
    weight, bias = np.ones((20, 32), np.float32), np.ones(20, np.float32)
    write_sentence_files(checkpoint, 32, modules=["Dense"], dense=(weight, bias))
    place = checkpoint / "2_Dense"
    save_file({"linear.weight": weight}, place / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"linear\.bias is missing"):
        build(checkpoint, tmp_path / "bundle")
    data = {"in_features": 32, "out_features": 20, "activation_function": "a.GELU"}
    write_json(place / "config.json", data)
    with pytest.raises(CheckpointError, match="activation_function 'a.GELU'"):
        build(checkpoint, tmp_path / "bundle")


# --- the way through optimum, of which the tests stand in for the other interpreter alone ---


def transformer(
    path: Path, table: NDArray[np.float32], types: bool = True, opset: int = OPSET
) -> None:
    """A graph as optimum exports: token vectors are rows of a table, plus 1000 for a type."""
    graph = GraphBuilder(opset)
    ids, mask = (graph.input(name, ("b", "t")) for name in ("input_ids", "attention_mask"))
    x = graph.op("Gather", graph.weight("table", table), ids)
    seen = graph.op("Unsqueeze", graph.op("Cast", mask, to=int(ir.DataType.FLOAT)), graph.ints(2))
    x = graph.op("Mul", x, seen)
    if types:
        kind = graph.op(
            "Cast", graph.input("token_type_ids", ("b", "t")), to=int(ir.DataType.FLOAT)
        )
        far = graph.op("Mul", kind, graph.scalar(1000.0))
        x = graph.op("Add", x, graph.op("Unsqueeze", far, graph.ints(2)))
    graph.save(x, "last_hidden_state", ("b", "t", table.shape[1]), path, path.with_name("any.data"))


@pytest.fixture
def table() -> NDArray[np.float32]:
    return np.random.default_rng(5).normal(size=(len(VOCABULARY), 32)).astype(np.float32)


@pytest.fixture
def interpreter(tmp_path: Path, table: NDArray[np.float32]) -> Path:
    """Stands in for a Python that has optimum: its export is a ready file."""
    transformer(tmp_path / "model.onnx", table)
    path = tmp_path / "python"
    path.write_text(
        f"#!{sys.executable}\n"
        "import os, shutil, sys\n"
        "assert os.environ['HF_HUB_OFFLINE'] == os.environ['TRANSFORMERS_OFFLINE'] == '1'\n"
        "if '-m' in sys.argv:\n"
        "    assert sys.argv[sys.argv.index('--task') + 1] == 'feature-extraction'\n"
        "    for name in ('model.onnx', 'any.data'):\n"
        f"        shutil.copy(os.path.join({str(tmp_path)!r}, name), sys.argv[-1])\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def other(checkpoint: Path) -> Path:
    """A checkpoint of an architecture that no graph here implements."""
    data = {"model_type": "electra", "vocab_size": len(VOCABULARY), "max_position_embeddings": 63}
    write_json(checkpoint / "config.json", data)
    write_sentence_files(checkpoint, 32, max_tokens=63)
    return checkpoint


needs_a_script = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script")


@needs_a_script
def test_a_graph_of_optimum_gets_pooling_and_norm(
    other: Path, tmp_path: Path, interpreter: Path, table: NDArray[np.float32]
) -> None:
    bundle = build(other, tmp_path / "bundle", optimum_python=interpreter)
    want = np.stack([table[token_ids(text)].mean(axis=0) for text in TEXTS])
    want /= np.linalg.norm(want, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors_of(bundle, TEXTS), want, rtol=0, atol=2e-6)
    assert spec_of(bundle).max_tokens == 60  # padding to a multiple of 4 has no position of its own
    assert {path.name for path in (bundle / "embedder").iterdir()} == {
        "model.onnx",
        "model.onnx.data",
        "tokenizer.json",
    }
    assert all(check.holds for check in verify_embedder(open_bundle(bundle)))


@needs_a_script
def test_the_same_export_gives_the_same_bytes(
    other: Path, tmp_path: Path, interpreter: Path
) -> None:
    first, second = (build(other, tmp_path / name, optimum_python=interpreter) for name in "ab")
    for name in (MODEL_FILE, WEIGHTS_FILE):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_where_optimum_is_missing_the_error_says_what_to_install(
    other: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        ExportError,
        match=r"needs optimum.*no extra.*PyTorch.*venv.*transformers<4\.58.*--optimum-python",
    ) as caught:
        build(other, tmp_path / "bundle")
    assert "\n" not in str(caught.value)
    with pytest.raises(ExportError, match=r"nowhere: cannot be started"):
        build(other, tmp_path / "bundle", optimum_python=tmp_path / "nowhere")


@needs_a_script
def test_what_optimum_says_last_is_passed_on(other: Path, tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nif '-m' in sys.argv:\n    sys.exit('one\\nValueError: no"
        " such model')\n"
    )
    path.chmod(0o755)
    with pytest.raises(
        ExportError, match="optimum could not export it: ValueError: no such model$"
    ):
        build(other, tmp_path / "bundle", optimum_python=path)


def test_graphs_that_are_no_encoders_are_refused(
    checkpoint: Path, tmp_path: Path, table: NDArray[np.float32]
) -> None:
    sentence, path = read_sentence_folder(checkpoint), tmp_path / "model.onnx"
    targets = tmp_path / "out.onnx", tmp_path / "out.data"

    def refused(message: str) -> None:
        with pytest.raises(CheckpointError, match=message):
            append_sentence(path, sentence, *targets)

    path.write_bytes(b"\xff" * 40)
    refused("not an ONNX file")
    transformer(path, table, opset=17)
    refused("opset 17")
    transformer(path, table[:, :16].copy())
    refused("vectors of 16 numbers, the pooling expects 32")
    graph = GraphBuilder(OPSET)
    x = graph.op("Cast", graph.input("input_ids", ("b", "t")), to=int(ir.DataType.FLOAT))
    graph.save(x, "last_hidden_state", ("b", "t"), path, tmp_path / "w")
    refused("the inputs input_ids and the outputs last_hidden_state")


def test_operators_of_others_are_not_absorbed() -> None:
    inner = Graph(OPSET)
    value = inner.microsoft_op("Gelu", inner.input("x", (1,)))
    graph = ir.Graph([], [], nodes=[value.producer()])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"Gelu is of com\.microsoft"):
        GraphBuilder(OPSET).absorb(graph)


def test_the_command(checkpoint: Path, tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    command = ["export", "encoder", "--from", str(checkpoint), "-o", str(target)]
    other = CliRunner().invoke(cli, [*command, "--long-text", "truncate"])  # it would lose [SEP]
    assert other.exit_code == 2
    assert "'window_mean', 'truncate_text', 'error'" in other.stderr
    first = CliRunner().invoke(cli, [*command, "--long-text", "truncate_text"])
    assert first.exit_code == 0, first.output
    assert first.stdout.strip() == str(target)
    assert (spec_of(target).name, spec_of(target).long_text) == ("checkpoint", "truncate_text")
    assert CliRunner().invoke(cli, command).exit_code != 0  # it is there
    assert CliRunner().invoke(cli, [*command, "--overwrite"]).exit_code == 0
    assert spec_of(target).long_text == "window_mean"
    assert math.isclose(float(np.linalg.norm(vectors_of(target, TEXTS)[0])), 1, abs_tol=1e-6)
