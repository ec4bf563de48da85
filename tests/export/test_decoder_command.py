"""From a decoder's folder to a bundle: manifest, prompts, shorter vectors, recipes, the command."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from support.changed_bundles import contents
from support.checkpoints.decoder import FAMILIES, write_dense
from support.command_line import Finished, assert_refused, vcs
from support.embedders import spec_of, vectors_of
from support.json_files import change_json
from support.numpy_decoder import embed, token_ids
from support.tiny_decoder import write_tiny_decoder
from vcs_export.checkpoint.recipe import recipes_folder
from vcs_export.errors import ExportError
from vcs_export.families.build import CUDA_FILE, Build, Quantization
from vcs_export.families.decoder import DecoderOptions, build_decoder_bundle
from vcs_export.write import BundleInfo
from vcs_runtime import Embedder
from vcs_runtime.bundle.manifest import Manifest
from vcs_runtime.bundle.opening import open_bundle

TEXTS = [
    "the dog runs",
    "a young woman opens the door and looks at the river while two cats run",
    "Zwei Katzen – 猫.",
]
# The folder of gte-Qwen2 does not tell how its tokens see each other.
ATTENTION = {"gte-qwen2": ["--attention", "bidirectional"]}


def export(folder: Path, target: Path, *arguments: str) -> Finished:
    return vcs("export", "decoder", "--from", str(folder), "-o", str(target), *arguments)


def exported(folder: Path, target: Path, *arguments: str) -> Path:
    run = export(folder, target, "--precision", "fp32", *arguments)
    assert run.code == 0, run.stderr
    assert run.stdout == f"{target}\n"
    return target


def manifest_of(bundle: Path) -> Manifest:
    return open_bundle(bundle).manifest


@pytest.fixture
def qwen3(tmp_path: Path) -> Path:
    return write_tiny_decoder(tmp_path / "qwen3", "qwen3")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_bundle_computes_the_published_formula(tmp_path: Path, family: str) -> None:
    folder = write_tiny_decoder(
        tmp_path / family, family, spelling=5, prefix="model.", lm_head=True
    )
    bundle = exported(folder, tmp_path / "bundle", *ATTENTION.get(family, []))
    with Embedder.open(bundle, device="cpu") as embedder:
        for text, vector in zip(TEXTS, embedder.embed(TEXTS), strict=True):
            np.testing.assert_allclose(
                vector, embed(folder, token_ids(folder, text)), rtol=0, atol=1e-5
            )


def test_the_attention_of_gte_is_the_callers(tmp_path: Path) -> None:
    folder = write_tiny_decoder(tmp_path / "gte", "gte-qwen2")
    bundle = exported(folder, tmp_path / "bundle", "--attention", "causal")
    [ids] = [token_ids(folder, text) for text in TEXTS[1:2]]
    [vector] = vectors_of(bundle, TEXTS[1:2])
    np.testing.assert_allclose(vector, embed(folder, ids, causal=True), rtol=0, atol=1e-5)
    assert np.abs(vector - embed(folder, ids, causal=False)).max() > 1e-2


def test_the_end_token_that_code_of_its_own_puts_is_known(tmp_path: Path) -> None:
    folder = write_tiny_decoder(tmp_path / "gte", "gte-qwen2")
    settings = folder / "tokenizer_config.json"
    change_json(settings, add_eos_token=None)
    bundle = exported(folder, tmp_path / "bundle", *ATTENTION["gte-qwen2"])
    assert spec_of(bundle).special_tokens == ((), (572,))


@pytest.mark.parametrize("family", ["qwen3", "embedding-gemma"])
def test_added_tokens_without_a_vector_are_plain_text(tmp_path: Path, family: str) -> None:
    """EmbeddingGemma's tokenizer has one for images, whose id is the number of its vectors."""
    folder = write_tiny_decoder(tmp_path / family, family)
    tokens = json.loads((folder / "config.json").read_text("utf-8"))["vocab_size"]
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    plain = embed(folder, token_ids(folder, "a <image> dog"))
    added = {**tokenizer["added_tokens"][0], "id": tokens, "content": "<image>"}
    change_json(folder / "tokenizer.json", added_tokens=[*tokenizer["added_tokens"], added])
    assert tokens in token_ids(folder, "a <image> dog")
    with Embedder.open(exported(folder, tmp_path / "bundle"), device="cpu") as embedder:
        np.testing.assert_allclose(embedder.embed(["a <image> dog"])[0], plain, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("family", "precision"), [("qwen3", "fp16"), ("embedding-gemma", "int8")])
def test_a_second_export_gives_the_same_bytes(tmp_path: Path, family: str, precision: str) -> None:
    folder = write_tiny_decoder(tmp_path / family, family, dtype="BF16")
    for name in ("a", "b"):
        run = export(
            *f"{folder} {tmp_path}/{name} --precision {precision} --least-cosine 0.9".split(),
            "--device",
            "cpu",
        )
        assert run.code == 0, run.stderr
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_all_that_a_killed_export_leaves_is_the_unfinished_bundle(
    qwen3: Path, tmp_path: Path
) -> None:
    """A later export removes it: the model with which int8 is compared is large."""
    place, beside = tmp_path / "place", set[str]()
    build_decoder_bundle(
        Build(
            qwen3,
            place / "bundle",
            BundleInfo("x", "MIT", "y"),
            Quantization("int8", least_cosine=0.5, most_change=1, device="cpu"),
            progress=lambda *_: beside.update(
                path.name.partition("-")[0] for path in place.iterdir()
            ),
        )
    )
    assert beside == {".bundle.partial"}


def test_without_options_the_folder_decides(qwen3: Path, tmp_path: Path) -> None:
    run = export(qwen3, tmp_path / "bundle")
    assert run.code == 0, run.stderr
    lines = run.stderr.splitlines()
    assert lines[2].startswith("vcs-runtime: fitness: ")
    assert lines[:2] == [
        "vcs-runtime: the licence of the weights is unknown: see the model card",
        (
            "vcs-runtime: qwen3: fp16, vectors of 32 numbers, texts of up to 512 tokens,"
            " instruction ''"
        ),
    ]
    manifest = manifest_of(tmp_path / "bundle")
    assert (manifest.name, manifest.licence, manifest.source) == ("qwen3", "NOASSERTION", "qwen3")
    spec = spec_of(tmp_path / "bundle")
    assert spec.long_text == "truncate_text"
    assert spec.special_tokens == ((), (572,))
    assert spec.mask_instruction is False


def test_numbers_that_fp16_does_not_hold_make_fp32_the_default(tmp_path: Path) -> None:
    folder = write_tiny_decoder(tmp_path / "gemma", "kalm-gemma3")
    assert export(folder, tmp_path / "bundle").code == 0
    assert spec_of(tmp_path / "bundle").precision == "fp32"
    run = export(folder, tmp_path / "other", "--precision", "fp16")
    assert run.code == 2
    assert (
        "precision fp16: the numbers of this model do not fit into float16: use bf16" in run.stderr
    )
    # With CUDA the products of int8 are in half precision, which is bfloat16 here.
    done = export(folder, tmp_path / "int8", "--precision", "int8", "--least-cosine", "0.9")
    assert done.code == 0
    graph = ir.load(tmp_path / "int8" / CUDA_FILE).graph
    stored = {value.dtype for value in graph.initializers.values()}
    assert ir.DataType.BFLOAT16 in stored
    assert ir.DataType.FLOAT16 not in stored


def test_prompts_and_instructions_stand_before_every_text(qwen3: Path, tmp_path: Path) -> None:
    prompt = FAMILIES["qwen3"].prompts["query"]
    plain = exported(qwen3, tmp_path / "plain")
    named = exported(qwen3, tmp_path / "named", "--prompt", "query")
    written = exported(qwen3, tmp_path / "written", "--instruction", "Query: ")
    assert [spec_of(bundle).instruction for bundle in (plain, named, written)] == [
        "",
        prompt,
        "Query: ",
    ]
    change_json(qwen3 / "config_sentence_transformers.json", default_prompt_name="query")
    assert spec_of(exported(qwen3, tmp_path / "default")).instruction == prompt
    assert spec_of(exported(qwen3, tmp_path / "none", "--instruction", "")).instruction == ""
    [vector] = vectors_of(named, TEXTS[:1])
    np.testing.assert_allclose(
        vector, embed(qwen3, token_ids(qwen3, TEXTS[0], prompt)), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("family", ["qwen3", "embedding-gemma"])
def test_shorter_vectors_are_the_first_numbers_at_unit_length(tmp_path: Path, family: str) -> None:
    folder = write_tiny_decoder(tmp_path / family, family)
    bundle = exported(folder, tmp_path / "bundle", "--dimension", "20")
    assert spec_of(bundle).dimension == 20
    [vector] = vectors_of(bundle, TEXTS[:1])
    want = embed(folder, token_ids(folder, TEXTS[0]), dimension=20)
    np.testing.assert_allclose(vector, want, rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vector), 1, atol=1e-6)


def test_the_folder_may_shorten_vectors(qwen3: Path, tmp_path: Path) -> None:
    """As sentence-transformers saves a model that was loaded with `truncate_dim`."""
    change_json(qwen3 / "config_sentence_transformers.json", truncate_dim=20)
    bundle = exported(qwen3, tmp_path / "bundle")
    [vector] = vectors_of(bundle, TEXTS[:1])
    want = embed(qwen3, token_ids(qwen3, TEXTS[0]), dimension=20)
    np.testing.assert_allclose(vector, want, rtol=0, atol=1e-5)
    assert spec_of(exported(qwen3, tmp_path / "longer", "--dimension", "32")).dimension == 32


def test_long_texts_are_cut_and_keep_their_end_token(qwen3: Path, tmp_path: Path) -> None:
    long = " ".join(TEXTS) * 3
    bundle = exported(qwen3, tmp_path / "bundle", "--max-tokens", "12")
    ids = token_ids(qwen3, long)
    [vector] = vectors_of(bundle, [long])
    np.testing.assert_allclose(vector, embed(qwen3, [*ids[:11], ids[-1]]), rtol=0, atol=1e-5)
    # The rotations of the other positions would only take space.
    full = exported(qwen3, tmp_path / "full")
    sizes = [(path / "embedder/model.onnx.data").stat().st_size for path in (bundle, full)]
    assert sizes[0] < sizes[1]
    windows = exported(
        qwen3, tmp_path / "windows", "--max-tokens", "12", "--long-text", "window_mean"
    )
    assert spec_of(windows).long_text == "window_mean"


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_folder_of_transformers_needs_the_pooling_alone(tmp_path: Path, pooling: str) -> None:
    folder = write_tiny_decoder(tmp_path / "bare", "qwen3", sentence=False)
    run = export(folder, tmp_path / "bundle")
    assert_refused(run, "there is no modules.json with the pooling: give --pooling")
    bundle = exported(folder, tmp_path / "bundle", "--pooling", pooling)
    kind = {"mean": "mean", "last": "lasttoken"}[pooling]
    [vector] = vectors_of(bundle, TEXTS[:1])
    want = embed(folder, token_ids(folder, TEXTS[0]), pooling=kind)
    np.testing.assert_allclose(vector, want, rtol=0, atol=1e-5)


def test_settings_of_the_tokenizer_add_special_tokens(tmp_path: Path) -> None:
    folder = write_tiny_decoder(tmp_path / "llama", "nemotron")
    settings = folder / "tokenizer_config.json"
    [start, end] = (572, 573)
    assert spec_of(exported(folder, tmp_path / "a")).special_tokens == ((start,), ())
    change_json(
        settings,
        add_eos_token=True,
        eos_token={"content": "<|end_of_text|>"},
        add_bos_token=True,
        bos_token="<|begin_of_text|>",
    )
    assert spec_of(exported(folder, tmp_path / "b")).special_tokens == ((start,), (end,))
    assert spec_of(exported(folder, tmp_path / "c", "--end-token", "none")).special_tokens == (
        (start,),
        (),
    )
    change_json(settings, add_bos_token=False)
    run = export(folder, tmp_path / "d")
    assert "add_bos_token is false, but tokenizer.json adds <|begin_of_text|>" in run.stderr


RECIPE = """
kind = "decoder"
name = "tiny"
licence = "Apache-2.0"
source = "someone/tiny"
instruction = "Query: "
max_tokens = 200
pooling = "lasttoken"
dimensions = { least = 8, most = 32 }
[config]
hidden_size = 32
causal = true
"""


def recipe(path: Path, text: str = RECIPE, **hashes: str) -> str:
    lines = "".join(f'"{name}" = "{digest}"\n' for name, digest in hashes.items())
    path.write_text(f"{text}[sha256]\n{lines}", "utf-8")
    return str(path)


class TestRecipes:
    def test_the_recipe_names_licence_and_settings(self, qwen3: Path, tmp_path: Path) -> None:
        names = ("model.safetensors", "tokenizer.json")
        hashes = {name: hashlib.sha256((qwen3 / name).read_bytes()).hexdigest() for name in names}
        file = recipe(tmp_path / "r.toml", **hashes)
        run = export(qwen3, tmp_path / "bundle", "--recipe", file, "--dimension", "8")
        assert run.code == 0, run.stderr
        assert run.stderr.startswith(
            "vcs-runtime: the weights of someone/tiny are licensed under Apache-2.0\n"
        )
        manifest = manifest_of(tmp_path / "bundle")
        assert manifest.name == "tiny"
        assert manifest.licence == "Apache-2.0"
        assert manifest.source == "someone/tiny"
        spec = spec_of(tmp_path / "bundle")
        assert (spec.instruction, spec.max_tokens, spec.dimension) == ("Query: ", 200, 8)
        (qwen3 / "tokenizer.json").write_bytes((qwen3 / "tokenizer.json").read_bytes() + b" ")
        run = export(qwen3, tmp_path / "other", "--recipe", file)
        assert_refused(run, "tokenizer.json is not the published file of someone/tiny")
        run = export(
            qwen3, tmp_path / "own", "--recipe", file, "--own-weights", "--instruction", ""
        )
        assert run.code == 0, run.stderr
        assert manifest_of(tmp_path / "own").name == "qwen3"
        assert spec_of(tmp_path / "own").instruction == ""

    @pytest.mark.parametrize(
        ("name", "family"),
        [("harrier-oss-v1-270m", "kalm-gemma3"), ("harrier-oss-v1-0.6b", "qwen3")],
    )
    def test_a_recipe_fits_models_of_its_family(
        self, tmp_path: Path, name: str, family: str
    ) -> None:
        folder = write_tiny_decoder(tmp_path / "tiny", family)
        config = json.loads((folder / "config.json").read_text("utf-8")) | {"max_tokens": 200}
        text = (recipes_folder() / f"{name}.toml").read_text("utf-8").partition("[sha256]")[0]
        for key in ("hidden_size", "num_hidden_layers", "max_tokens"):
            text = re.sub(rf"(?m)^{key} = .*", f"{key} = {config[key]}", text)
        file = recipe(tmp_path / "r.toml", text)
        run = export(folder, tmp_path / "bundle", "--recipe", file)
        assert run.code == 0, run.stderr
        assert f"the weights of microsoft/{name} are licensed under MIT" in run.stderr
        assert manifest_of(tmp_path / "bundle").name == name

    def test_the_weights_of_dense_layers_are_compared(self, tmp_path: Path) -> None:
        folder = write_tiny_decoder(tmp_path / "gemma", "embedding-gemma")
        names = ("model.safetensors", "tokenizer.json", "2_Dense/model.safetensors")
        hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
        text = (
            'kind = "decoder"\nname = "tiny"\nlicence = "MIT"\nsource = "someone/tiny"\nmax_tokens'
            " = 200\n"
        )
        file = recipe(tmp_path / "r.toml", f"{text}dense = 2\n[config]\n", **hashes)
        assert export(folder, tmp_path / "bundle", "--recipe", file).code == 0
        write_dense(folder, 48, (80, 48), seed=1)
        run = export(folder, tmp_path / "other", "--recipe", file)
        assert_refused(run, "2_Dense/model.safetensors is not the published file of someone/tiny")

    @pytest.mark.parametrize(
        ("old", "new", "arguments", "message"),
        [
            (
                "hidden_size = 32",
                "hidden_size = 64",
                [],
                "is not someone/tiny: hidden_size is 32, not 64",
            ),
            (
                "causal = true",
                "causal = false",
                [],
                "the attention of this model is causal, not bidirectional",
            ),
            ('pooling = "lasttoken"', 'pooling = "mean"', [], "the pooling is lasttoken, not mean"),
            ("max_tokens = 200", "max_tokens = 200\ndense = 2", [], "it has 0 dense layers, not 2"),
            (
                "",
                "",
                ["--dimension", "7"],
                "dimension 7: someone/tiny gives vectors of 8 to 32 numbers",
            ),
            (
                "{ least = 8, most = 32 }",
                "[8, 16]",
                ["--dimension", "12"],
                "vectors of 8, 16 numbers",
            ),
            ("hidden_size", "hiden_size", [], "hiden_size are not settings of the model"),
        ],
    )
    def test_another_model_or_length_is_refused(
        self, qwen3: Path, tmp_path: Path, old: str, new: str, arguments: list[str], message: str
    ) -> None:
        file = recipe(tmp_path / "r.toml", RECIPE.replace(old, new, 1))
        run = export(qwen3, tmp_path / "bundle", "--recipe", file, *arguments)
        assert_refused(run, message)
        assert not (tmp_path / "bundle").exists()

    @pytest.mark.parametrize(
        ("family", "arguments"),
        [("gte-qwen2", ["--attention", "bidirectional"]), ("qwen3", ["--pooling", "mean"])],
    )
    def test_what_contradicts_the_recipe_is_refused(
        self, tmp_path: Path, family: str, arguments: list[str]
    ) -> None:
        folder = write_tiny_decoder(tmp_path / family, family, sentence=False, hidden_size=48)
        file = recipe(tmp_path / "r.toml", RECIPE.replace("hidden_size = 32", "hidden_size = 48"))
        run = export(folder, tmp_path / "bundle", "--recipe", file, *arguments)
        assert_refused(run, f"{arguments[0][2:]} contradicts the recipe of someone/tiny")

    def test_the_recipe_knows_the_attention_that_the_folder_does_not_tell(
        self, tmp_path: Path
    ) -> None:
        folder = write_tiny_decoder(tmp_path / "gte", "gte-qwen2")
        file = recipe(tmp_path / "r.toml", RECIPE.replace("hidden_size = 32", "hidden_size = 48"))
        assert export(folder, tmp_path / "bundle", "--recipe", file).code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "cls"}, "pooling must be one of mean, lasttoken, not 'cls'"),
        ({"prompt": "a", "instruction": "b"}, "prompt and instruction cannot be combined"),
        (
            {"prompt": "a"},
            (
                "config_sentence_transformers.json: prompt 'a' is not one of the prompts: query,"
                " document"
            ),
        ),
        ({"dimension": 33}, "dimension must be 1 to 32, not 33"),
        ({"max_tokens": 513}, "max_tokens must be 3 to 512, not 513"),
        ({"pooling": "mean"}, "the pooling is lasttoken, not mean"),
        ({"end_token": "<x>"}, "tokenizer.json: it has no token <x>"),
        ({"causal": False}, "the attention of this model is causal, not bidirectional"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    qwen3: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ExportError, match=message):
        build_decoder_bundle(
            Build(qwen3, tmp_path / "bundle", BundleInfo("x", "MIT", "y"), Quantization("fp32")),
            DecoderOptions(**options),
        )


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_vector_has_the_same_bits_alone_and_in_a_batch_in_every_precision(
    qwen3: Path, tmp_path: Path, precision: str
) -> None:
    """With AVX-512 kernels for few or odd rows round otherwise (`batching._fillers`)."""
    quantization = Quantization(precision, texts=["a dog"], least_cosine=-1, most_change=1)
    info = BundleInfo("tiny", "CC0-1.0", "made for the test")
    bundle = build_decoder_bundle(Build(qwen3, tmp_path / "bundle", info, quantization))
    texts = [
        f"{word} the dog"
        for word in ("the", "man", "red", "two", "a woman", "the dog", "young cats run")
    ]
    with Embedder.open(bundle, "cpu") as embedder:
        assert np.array_equal(
            embedder.embed(texts), np.concatenate([embedder.embed([text]) for text in texts])
        )
        assert np.array_equal(embedder.embed(texts[:3]), embedder.embed(texts)[:3])
