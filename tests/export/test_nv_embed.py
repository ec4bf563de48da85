"""From an NV-Embed folder to a bundle: what is refused, links and copies, recipes, the command."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from msgspec.structs import replace as replace_fields
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from support.changed_bundles import contents
from support.checkpoints.files import write_safetensors
from support.checkpoints.nv_embed import write_tiny_nv_embed
from support.embedders import spec_of
from support.matrix import matrix
from support.numpy_nv_embed import embed
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from vcs_export.checkpoint.decoder import DecoderConfig
from vcs_export.checkpoint.nv_embed import open_nv_embed
from vcs_export.checkpoint.recipe import NV_EMBED, NvEmbedRecipe, load_recipe
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.families.build import MODEL_FILE, TOKENIZER_FILE, WEIGHTS_FILE, Build, Quantization
from vcs_export.families.decoder import build_nv_embed_bundle
from vcs_export.write import BundleExistsError, named_after
from vcs_runtime import Embedder
from vcs_runtime.bundle.manifest import EmbedderSpec
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli import cli

TEXTS = [
    "the dog runs",
    "a young woman opens the door and looks at the river",
    "Zwei Katzen \u2013 \u732b.",
]
SHARDS = [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)]
FP32 = Quantization("fp32")


def build_from_recipe(
    recipe: NvEmbedRecipe, checkpoint: Path, target: Path, own_weights: bool = False
) -> Path:
    build = Build(checkpoint, target, named_after(checkpoint), FP32, own_weights=own_weights)
    return build_nv_embed_bundle(build, recipe=recipe)


INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that is only read."""
    return write_tiny_nv_embed(tmp_path_factory.mktemp("nv-embed") / "checkpoint", shards=3)


@pytest.fixture
def copy(sharded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sharded, tmp_path / "copy"))


def change(folder: Path, part: str | None = None, **values: Any) -> None:
    path = folder / "config.json"
    data = json.loads(path.read_text("utf-8"))
    (data[part] if part else data).update(values)
    path.write_text(json.dumps(data), "utf-8")


def test_the_manifest_says_how_to_run_it(sharded: Path, tmp_path: Path) -> None:
    bundle = build_tiny_nv_embed_bundle(
        tmp_path, checkpoint=sharded, instruction="Query: ", max_tokens=40
    )
    assert replace_fields(spec_of(bundle), proof=None) == EmbedderSpec(
        name="tiny-nv-embed",
        model=MODEL_FILE,
        weights=(*(f"embedder/{name}" for name in SHARDS), WEIGHTS_FILE),
        tokenizer=TOKENIZER_FILE,
        dimension=32,
        max_tokens=40,
        long_text="truncate",
        precision="fp32",
        layout="packed",
        instruction="Query: ",
        mask_instruction=True,
        special_tokens=((1,), (2,)),
    )


@pytest.mark.parametrize("weights", ["link", "copy"])
def test_the_runtime_embeds_with_it(sharded: Path, tmp_path: Path, weights: str) -> None:
    bundle = build_tiny_nv_embed_bundle(tmp_path, checkpoint=sharded, weights=weights)
    with Embedder.open(bundle, device="cpu") as embedder:
        words = Tokenizer.from_file(str(bundle / TOKENIZER_FILE))
        for instruction in ("", "Instruct: Describe the scene:", "Query: "):
            skip = (
                len(words.encode(instruction, add_special_tokens=False).ids) if instruction else 0
            )
            got = embedder.embed(TEXTS, instruction=instruction)
            for text, vector in zip(TEXTS, got, strict=True):
                ids = words.encode(instruction + text, add_special_tokens=False).ids
                want = embed(sharded, [1, *ids, 2], skip)
                np.testing.assert_allclose(vector, want, rtol=0, atol=1e-5)


def test_links_share_the_bytes_and_copies_do_not(sharded: Path, tmp_path: Path) -> None:
    linked, copied = (
        build_tiny_nv_embed_bundle(tmp_path / mode, checkpoint=sharded, weights=mode)
        for mode in ("link", "copy")
    )
    for name in SHARDS:
        assert os.path.samefile(linked / "embedder" / name, sharded / name)
        assert not (copied / "embedder" / name).exists()
    own = {path.name for path in (copied / "embedder").iterdir()}
    assert own == {"model.onnx", "model.onnx.data", "tokenizer.json"}
    with (
        Embedder.open(linked, device="cpu") as first,
        Embedder.open(copied, device="cpu") as second,
    ):
        np.testing.assert_allclose(first.embed(TEXTS), second.embed(TEXTS), rtol=0, atol=1e-6)


def test_large_files_are_known_by_their_ends_too(
    sharded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "vcs_export.write.ends_of", lambda path: "0" * 64 if path.suffix == ".data" else None
    )
    bundle = build_tiny_nv_embed_bundle(tmp_path, checkpoint=sharded)
    paths = {entry.path for entry in open_bundle(bundle).manifest.files if entry.ends}
    assert paths == {WEIGHTS_FILE}


def test_links_lead_to_the_file_behind_a_link(sharded: Path, tmp_path: Path) -> None:
    # A hub's cache keeps files under their hashes, and links to them under their names.
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for path in sharded.iterdir():
        (snapshot / path.name).symlink_to(path)
    bundle = build_tiny_nv_embed_bundle(tmp_path, checkpoint=snapshot)
    for name in SHARDS:
        assert not (bundle / "embedder" / name).is_symlink()
        assert os.path.samefile(bundle / "embedder" / name, sharded / name)
    with Embedder.open(bundle, device="cpu") as embedder:
        embedder.embed(TEXTS)


@pytest.mark.parametrize(
    ("dtype", "precision"), [("F32", "fp16"), ("F16", "fp32"), ("F32", "int8")]
)
def test_nothing_is_linked_where_matrices_are_converted(
    tmp_path: Path, dtype: str, precision: str
) -> None:
    checkpoint = write_tiny_nv_embed(tmp_path / "checkpoint", dtype=dtype, shards=2)
    bundle = build_tiny_nv_embed_bundle(tmp_path, checkpoint=checkpoint, precision=precision)
    assert spec_of(bundle).weights == (WEIGHTS_FILE,)


def test_a_link_that_cannot_be_made_is_explained(
    sharded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(ExportError, match=r"cannot be linked .* \(--weights copy\)"):
        build_tiny_nv_embed_bundle(tmp_path, checkpoint=sharded)
    assert not list(tmp_path.iterdir())
    # Measuring a loss can do without links.
    loss = spec_of(
        build_tiny_nv_embed_bundle(tmp_path, checkpoint=sharded, precision="int8")
    ).quantization_error
    assert loss is not None


@pytest.mark.parametrize(
    "precision",
    ["fp32", "int8", *(pytest.param(name, marks=pytest.mark.slow) for name in ("fp16", "bf16"))],
)
def test_a_second_export_gives_the_same_bytes(
    sharded: Path, tmp_path: Path, precision: str
) -> None:
    first, second = (
        contents(
            build_tiny_nv_embed_bundle(
                tmp_path / name, checkpoint=sharded, precision=precision, texts=TEXTS
            )
        )
        for name in "ab"
    )
    assert first == second


def test_lower_precisions_are_smaller_and_say_what_they_lose(sharded: Path, tmp_path: Path) -> None:
    sizes = []
    for precision, least in (("int8", 0.99), ("fp16", None), ("fp32", None)):
        checkpoint = write_tiny_nv_embed(
            tmp_path / precision / "checkpoint", hidden=128, intermediate=1024
        )
        bundle = build_tiny_nv_embed_bundle(
            tmp_path / precision,
            checkpoint=checkpoint,
            precision=precision,
            weights="copy",
            texts=TEXTS,
        )
        sizes.append((bundle / WEIGHTS_FILE).stat().st_size)
        loss = spec_of(bundle).quantization_error
        assert (loss is None) == (least is None)
        if loss and least:
            assert loss.texts == len(TEXTS)
            assert least < loss.cosine_min <= loss.cosine_mean < 1
            assert loss.pairs == 3  # the texts are short, and joined
            assert loss.vcs_change is not None
            assert 0 <= loss.vcs_change < 0.5
    assert sizes == sorted(sizes)


@pytest.mark.parametrize(
    ("part", "key", "value", "message"),
    [
        (None, "model_type", "bert", "model_type 'bert' is not supported"),
        (None, "padding_side", "left", "padding_side 'left'"),
        (None, "add_eos", False, "add_eos False"),
        (None, "is_mask_instruction", False, "is_mask_instruction False"),
        (None, "text_config", None, "must be a JSON object"),
        ("text_config", "hidden_act", "gelu", "hidden_act 'gelu'"),
        ("text_config", "rope_scaling", {"factor": 2}, "rope_scaling"),
        ("text_config", "num_key_value_heads", 3, "not a multiple of num_key_value_heads 3"),
        ("text_config", "num_attention_heads", 5, "hidden_size 32 is not a multiple"),
        ("text_config", "head_dim", 7, "heads of size 7"),
        (
            "text_config",
            "head_dim",
            6,
            r"q_proj\.weight has the shape \(32, 32\), config.json implies \(24, 32\)",
        ),
        ("text_config", "rms_norm_eps", 0, "rms_norm_eps must be above 0"),
        ("text_config", "rope_theta", None, "rope_theta must be of type float"),
        ("text_config", "num_hidden_layers", 3, r"layers\.2\.input_layernorm\.weight is missing"),
        ("text_config", "num_hidden_layers", 1, r"layers\.1\.\S+ does not belong"),
        ("text_config", "vocab_size", 9, r"embed_tokens\.weight has the shape"),
        ("text_config", "bos_token_id", None, "bos_token_id must be of type int"),
        ("text_config", "eos_token_id", 0, "</s> must have the id 0, not 2"),
        ("latent_attention_config", "output_normalize", False, "output_normalize False"),
        (
            "latent_attention_config",
            "latent_dim",
            16,
            "latent_dim 16 of the latent part is not the hidden_size",
        ),
        ("latent_attention_config", "num_latents_value", 5, r"latents has the shape \(6, 32\)"),
        ("latent_attention_config", "num_cross_heads", 3, r"to_q\.weight has the shape \(32, 32\)"),
    ],
)
def test_settings_that_do_not_hold_are_refused_by_name(
    copy: Path, tmp_path: Path, part: str | None, key: str, value: Any, message: str
) -> None:
    change(copy, part, **{key: value})
    with pytest.raises(CheckpointError, match=message) as caught:
        build_tiny_nv_embed_bundle(tmp_path, checkpoint=copy)
    assert "\n" not in str(caught.value)
    assert str(copy) in str(caught.value)
    assert not (tmp_path / "bundle").exists()


def test_the_latent_part_needs_no_settings(sharded: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sharded, tmp_path / "copy"))
    change(folder, latent_attention_config={"model_type": "latent_attention"})
    with pytest.raises(
        CheckpointError, match="hidden_dim 4096 of the latent part is not the hidden_size 32"
    ):
        open_nv_embed(folder)


@matrix(
    "name, content", ["config.json", "tokenizer.json", INDEX, SHARDS[1]], [None, b"", b"\xff" * 99]
)
def test_a_missing_or_damaged_file_is_named(
    copy: Path, tmp_path: Path, name: str, content: bytes | None
) -> None:
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name) as caught:
        build_tiny_nv_embed_bundle(tmp_path, checkpoint=copy)
    assert "\n" not in str(caught.value)


def test_a_download_that_broke_off_is_noticed(copy: Path, tmp_path: Path) -> None:
    with (copy / SHARDS[2]).open("r+b") as file:
        file.truncate((copy / SHARDS[2]).stat().st_size - 1)
    with pytest.raises(CheckpointError, match=rf"{SHARDS[2]}: damaged"):
        build_tiny_nv_embed_bundle(tmp_path, checkpoint=copy)


def _rename(tensors: dict[str, Any]) -> None:
    tensors["embedding_model.layers.7.norm"] = tensors.pop("embedding_model.norm.weight")


@pytest.mark.parametrize(
    ("change_tensors", "message"),
    [
        (
            lambda t: t.pop("latent_attention_model.latents"),
            r"latent_attention_model\.latents is missing",
        ),
        (_rename, r"embedding_model\.norm\.weight is missing"),
        (lambda t: t.update(extra=np.zeros(3, np.float32)), "the tensor extra does not belong"),
        (
            lambda t: t.update({"embedding_model.norm.weight": np.zeros(32, np.int32)}),
            r"embedding_model\.norm\.weight is I32, only F32, F16, BF16",
        ),
        (
            lambda t: t.update({"embedding_model.norm.weight": np.zeros((1, 32), np.float32)}),
            r"embedding_model\.norm\.weight has the shape \(1, 32\), config.json implies \(32,\)",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    tmp_path: Path, change_tensors: Callable[[dict[str, Any]], Any], message: str
) -> None:
    folder = write_tiny_nv_embed(tmp_path / "checkpoint")
    tensors = load_file(folder / "model.safetensors")
    change_tensors(tensors)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        build_tiny_nv_embed_bundle(tmp_path, checkpoint=folder)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("../model.safetensors", "not a plain file name"),
        ("/etc/passwd", "not a plain file name"),
        (7, "not a plain file name"),
        ("model-00009-of-00003.safetensors", "no such file"),
        (SHARDS[0], "but model.safetensors.index.json puts it into"),
    ],
)
def test_an_index_that_does_not_hold_is_refused(copy: Path, place: Any, message: str) -> None:
    data = json.loads((copy / INDEX).read_text("utf-8"))
    name = next(name for name, file in data["weight_map"].items() if file == SHARDS[1])
    data["weight_map"][name] = place
    (copy / INDEX).write_text(json.dumps(data), "utf-8")
    with pytest.raises(CheckpointError, match=message):
        open_nv_embed(copy)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_checkpoint_with_a_weight_that_is_no_number_is_refused(
    tmp_path: Path, precision: str
) -> None:
    source = write_tiny_nv_embed(tmp_path / "checkpoint")
    path = source / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-4:] = np.array([np.nan], np.float32).tobytes()
    path.write_bytes(content)
    with pytest.raises(
        ExportError, match=r"model.safetensors: the tensor \S+ holds NaN or infinity"
    ):
        build_tiny_nv_embed_bundle(tmp_path, checkpoint=source, precision=precision)
    assert [item.name for item in tmp_path.iterdir()] == ["checkpoint"]


def test_an_index_beside_a_single_file_is_refused(copy: Path) -> None:
    write_safetensors(copy / "model.safetensors", {"x": np.zeros(1, np.float32)})
    with pytest.raises(CheckpointError, match="remove the wrong one"):
        open_nv_embed(copy)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int2"}, "precision must be one of fp32, fp16, bf16, int8, not 'int2'"),
        ({"least_cosine": 2}, "least_cosine must be -1 to 1, not 2"),
        (
            {"precision": "int8", "device": "tensorrt:0"},
            "device must be auto, cpu or cuda:N, not tensorrt:0",
        ),
        ({"weights": "symlink"}, "weights must be one of link, copy"),
        ({"max_tokens": 65}, "max_tokens must be 3 to 64"),
        ({"max_tokens": 2}, "max_tokens must be 3 to 64"),
        ({"name": "a|b"}, "name 'a|b'"),
    ],
)
def test_options_out_of_range_are_refused(
    sharded: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ExportError, match=message):
        build_tiny_nv_embed_bundle(tmp_path, checkpoint=sharded, **options)


def test_what_is_there_stays_until_the_new_bundle_is_whole(sharded: Path, tmp_path: Path) -> None:
    bundle = build_tiny_nv_embed_bundle(tmp_path, checkpoint=sharded)
    before = contents(bundle)
    with pytest.raises(BundleExistsError):
        build_tiny_nv_embed_bundle(tmp_path, checkpoint=sharded)

    def stop(step: str, done: int, total: int) -> None:
        if step == "writing" and done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_tiny_nv_embed_bundle(tmp_path, checkpoint=sharded, replace=True, progress=stop)
    assert contents(bundle) == before
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    build_tiny_nv_embed_bundle(tmp_path, checkpoint=sharded, replace=True, precision="fp16")
    assert spec_of(bundle).precision == "fp16"


def test_progress_ends_at_its_total(sharded: Path, tmp_path: Path) -> None:
    seen: dict[str, tuple[int, int]] = {}

    def tell(step: str, done: int, total: int) -> None:
        assert seen.get(step, (0, 0))[0] <= done <= total
        seen[step] = done, total

    build_tiny_nv_embed_bundle(tmp_path, checkpoint=sharded, progress=tell)
    assert set(seen) == {"writing", "hashing"}
    assert all(done == total for done, total in seen.values())


class TestRecipes:
    def test_the_recipe_is_that_of_the_published_model(self) -> None:
        recipe = load_recipe(NV_EMBED, NvEmbedRecipe)
        assert recipe.name == "nv-embed-v2"
        assert recipe.licence == "CC-BY-NC-4.0"
        assert recipe.instruction == ""
        assert len(recipe.sha256) == 5
        settings = {item.name for item in fields(DecoderConfig) if item.default is MISSING}
        assert set(recipe.config) | {"causal"} == settings

    def test_published_files_are_compared_and_named_so(self, copy: Path, tmp_path: Path) -> None:
        opened = open_nv_embed(copy)
        config = {key: getattr(opened.decoder, key) for key in ("hidden_size", "num_hidden_layers")}
        names = [*SHARDS, "tokenizer.json"]
        digests = {name: hashlib.sha256((copy / name).read_bytes()).hexdigest() for name in names}
        recipe = msgspec.structs.replace(
            load_recipe(NV_EMBED, NvEmbedRecipe), config=config, latent={}, sha256=digests
        )
        bundle = build_from_recipe(recipe, copy, tmp_path / "bundle")
        manifest = open_bundle(bundle).manifest
        assert (manifest.name, manifest.source) == ("nv-embed-v2", "nvidia/NV-Embed-v2")
        assert (bundle / "LICENSES/CC-BY-NC-4.0.txt").read_text("utf-8") == recipe.notice
        content = bytearray((copy / SHARDS[0]).read_bytes())
        content[-1] ^= 1
        (copy / SHARDS[0]).write_bytes(content)
        with pytest.raises(
            CheckpointError, match=rf"{SHARDS[0]} is not the published file .*--own-weights"
        ):
            build_from_recipe(recipe, copy, tmp_path / "other")
        own = build_from_recipe(recipe, copy, tmp_path / "other", own_weights=True)
        assert open_bundle(own).manifest.name == "copy"
        same = copy.rename(copy.with_name("NV-Embed-v2"))
        own = build_from_recipe(recipe, same, tmp_path / "same", own_weights=True)
        # Not the name of the published model.
        assert open_bundle(own).manifest.name == "NV-Embed-v2-own"

    def test_a_model_of_another_size_is_ones_own(self, sharded: Path, tmp_path: Path) -> None:
        bundle = build_from_recipe(
            load_recipe(NV_EMBED, NvEmbedRecipe), sharded, tmp_path / "bundle"
        )
        manifest = open_bundle(bundle).manifest
        assert (manifest.name, manifest.source) == ("checkpoint", "checkpoint")
        assert manifest.licence == "CC-BY-NC-4.0"


def test_the_command_builds_shows_the_licence_and_measures(sharded: Path, tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    run = CliRunner().invoke(
        cli,
        ["export", "nv-embed-v2", "--from", str(sharded), "-o", str(target), "--precision", "int8"],
    )
    assert run.exit_code == 0, run.output
    assert run.stdout == f"{target}\n"
    assert "CC-BY-NC-4.0" in run.stderr
    assert "cosine of int8 to unquantised vectors" in run.stderr
    with Embedder.open(target, device="cpu") as embedder:
        assert embedder.embed(TEXTS).shape == (3, 32)


@pytest.mark.parametrize(
    "command",
    [
        ["export", "nv-embed-v2", "--from", ".", "-o", "bundle"],
        ["export", "verify", "bundle"],
    ],
)
def test_a_device_that_does_not_exist_is_wrong_usage(command: list[str]) -> None:
    run = CliRunner().invoke(cli, [*command, "--device", "gpu"])
    assert run.exit_code == 2
    assert "'cuda:all' or 'tensorrt:N', in lower case, not 'gpu'" in run.stderr
