"""What `vcs-runtime kit` gathers for a Python and a platform, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.changed_bundles import edit
from support.command_line import Finished
from support.tiny_wheels import write_own, write_source, write_wheel

Make = Callable[..., Finished]
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
linux = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="names wheels of it"
)


def wheels(kit: Path) -> list[str]:
    return sorted(re.sub(r"^pip-.*", "pip", path.name) for path in (kit / "wheels").iterdir())


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def refused(done: Finished, kit: Path) -> str:
    """Return the one line with which a command ended, which left nothing behind."""
    assert done.code == 2
    assert list(kit.parent.glob(f"*{kit.name}*")) == []
    lines = [line for line in done.stderr.splitlines() if not re.match("Usage: |Try |$", line)]
    return lines[-1]


@linux
def test_a_kit_holds_the_packages_of_its_extras_for_this_machine(kit: Path) -> None:
    assert wheels(kit) == [
        "onnxruntime-1.0-py3-none-manylinux_2_17_x86_64.whl",
        "pip",
        "tiny_base-1.0-py3-none-any.whl",
        "tiny_rules-1.0-py3-none-any.whl",
        "tiny_words-1.0-py3-none-any.whl",
        "vcs_runtime-0.1.0-py3-none-any.whl",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tag", "special"),
    [
        (
            "win_amd64",
            {"tiny_windows-1.0-py3-none-any.whl", "onnxruntime-1.0-py3-none-win_amd64.whl"},
        ),
        pytest.param(
            "macosx_14_0_arm64",
            {"onnxruntime-1.0-py3-none-macosx_11_0_arm64.whl"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "manylinux_2_28_aarch64",
            {"onnxruntime-1.0-py3-none-manylinux_2_17_aarch64.whl"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_requirements_are_those_of_the_named_platform(
    make_kit: Make, tmp_path: Path, tag: str, special: set[str]
) -> None:
    done = make_kit(tmp_path / "kit", "--platform", tag, "--python", "3.13")
    assert done.code == 0, done.stderr
    everywhere = {
        "pip",
        "tiny_base-1.0-py3-none-any.whl",
        "tiny_rules-1.0-py3-none-any.whl",
        "tiny_words-1.0-py3-none-any.whl",
        "vcs_runtime-0.1.0-py3-none-any.whl",
    }
    assert set(wheels(tmp_path / "kit")) == everywhere | special
    about = json.loads((tmp_path / "kit/kit.json").read_text())
    assert (about["python"], about["platform"]) == ("3.13", tag)


def test_every_file_has_its_checksum(kit: Path) -> None:
    lines = dict(
        reversed(line.split("  ")) for line in (kit / "SHA256SUMS").read_text().splitlines()
    )
    files = {path.relative_to(kit).as_posix(): path for path in kit.rglob("*") if path.is_file()}
    del files["SHA256SUMS"]
    assert lines == {name: sha256(path) for name, path in files.items()}
    pinned = (kit / "requirements.txt").read_text()
    for wheel in (kit / "wheels").iterdir():
        name, version = wheel.name.split("-")[:2]
        assert f"{name.replace('_', '-')}=={version} --hash=sha256:{sha256(wheel)}\n" in pinned
    assert pinned.count("\n") == len(list((kit / "wheels").iterdir()))


def test_a_kit_has_what_the_containerfile_copies_and_runs(kit: Path) -> None:
    text = (Path(__file__).parents[2] / "Containerfile").read_text("utf-8")
    copied = [
        name for line in re.findall(r"^COPY (kit.*) \S+$", text, re.M) for name in line.split()
    ]
    assert {"kit", "kit/sbom.cdx.json"} <= set(copied)
    assert [
        name
        for name in [*copied, *re.findall(r"sh /(\S+)", text)]
        if not (kit.parent / name).exists()
    ] == []


def test_the_maker_is_told_the_checksum_of_the_checksums(made: Finished, kit: Path) -> None:
    assert f"sha256 of SHA256SUMS: {sha256(kit / 'SHA256SUMS')}\n" in made.stderr


def test_the_bill_of_materials_is_valid_and_names_packages_hashes_licences_and_needs(
    kit: Path,
) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = (kit / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bom = json.loads(text)
    parts = {part["name"]: part for part in [bom["metadata"]["component"], *bom["components"]]}
    names = {path.name.split("-")[0].replace("_", "-") for path in (kit / "wheels").iterdir()}
    assert parts.keys() == names | {"tiny-bert"}
    [wheel] = (kit / "wheels").glob("tiny_words-*")
    assert parts["tiny-words"]["hashes"] == [{"alg": "SHA-256", "content": sha256(wheel)}]
    assert parts["tiny-words"]["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
    assert parts["tiny-words"]["purl"] == "pkg:pypi/tiny-words@1.0"
    assert parts["tiny-bert"]["type"] == "machine-learning-model"
    assert parts["tiny-bert"]["hashes"][0]["content"] == sha256(kit / "bundle/bundle.json")
    needs = {item["ref"]: item.get("dependsOn", []) for item in bom["dependencies"]}
    assert needs["pkg:pypi/tiny-rules@1.0"] == ["pkg:pypi/tiny-words@1.0"]
    assert "bundle:tiny-bert" in needs["pkg:pypi/vcs-runtime@0.1.0"]


def test_licences_of_packages_are_copied_and_listed(kit: Path) -> None:
    base = kit / "licences/tiny-base-1.0/tiny_base-1.0.dist-info"
    assert (base / "LICENSE.txt").read_text() == "B"
    assert (base / "licenses/vendored/NOTICE").read_text() == "C"
    listed = (kit / "licences/licences.txt").read_text().splitlines()
    assert "tiny-base 1.0: MIT; licence texts: 2" in listed
    assert "tiny-words 1.0: BSD-3-Clause; licence texts: 0" in listed
    assert "bundle tiny-bert: CC0-1.0; see the folder bundle" in listed


def test_the_bundle_is_copied_whole(kit: Path, tiny_bundle: Path) -> None:
    for path in tiny_bundle.rglob("*"):
        if path.is_file():
            assert (
                kit / "bundle" / path.relative_to(tiny_bundle)
            ).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_gpu_takes_the_place_of_cpu(make_kit: Make, tmp_path: Path) -> None:
    assert make_kit(tmp_path / "kit", "--extra", "gpu").code == 0
    assert {name.split("-")[0] for name in wheels(tmp_path / "kit")} >= {
        "onnxruntime_gpu",
        "tiny_rules",
    }
    assert "onnxruntime" not in {name.split("-")[0] for name in wheels(tmp_path / "kit")}


@pytest.mark.slow
def test_what_has_no_wheel_is_built_from_source(make_kit: Make, tmp_path: Path) -> None:
    done = make_kit(tmp_path / "kit", "--extra", "sourced", "--platform", "win_amd64")
    assert done.code == 0, done.stderr
    assert "building tiny-sourced from source" in done.stderr
    assert "tiny_sourced-0.2-py3-none-any.whl" in wheels(tmp_path / "kit")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            ["--extra", "nothing"],
            (
                "unknown extra 'nothing': choose from colours, cpu, default, gpu, heavy, parity,"
                " sourced"
            ),
        ),
        (["--extra", "parity"], "vcs-runtime would install PyTorch, which a kit never contains"),
        (["--extra", "heavy"], "tiny-heavy would install PyTorch"),
        (
            ["--extra", "gpu", "--extra", "cpu"],
            "install onnxruntime and onnxruntime-gpu, which overwrite each other",
        ),
        (
            ["--extra", "colours"],
            "install onnxruntime and onnxruntime-gpu, which overwrite each other",
        ),
        (["--python", "3"], "--python must be a version such as 3.12, not '3'"),
        (
            ["--platform", "windows"],
            "--platform must be a tag of wheels such as manylinux_2_28_x86_64, ",
        ),
        (["--platform", "musllinux_1_2_x86_64"], "onnxruntime"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_kit_that_cannot_work_is_refused(
    make_kit: Make, tmp_path: Path, options: list[str], reason: str
) -> None:
    assert reason in refused(make_kit(tmp_path / "kit", *options), tmp_path / "kit")


@linux
@pytest.mark.slow
def test_what_can_only_be_built_for_this_machine_is_taken_for_it_and_refused_for_another(
    make_kit: Make, index: Path, tmp_path: Path
) -> None:
    tag = f"cp{PYTHON.replace('.', '')}-cp{PYTHON.replace('.', '')}-linux_x86_64"
    write_source(index, "tiny-compiled", "1.0", tag)
    own = write_own(tmp_path, requires=["tiny-compiled"])
    message = refused(
        make_kit(tmp_path / "kit", "--platform", "win_amd64", wheel=own), tmp_path / "kit"
    )
    assert f"tiny-compiled has no wheel for CPython {PYTHON} on win_amd64" in message
    assert "make the kit on a machine of that kind" in message
    assert make_kit(tmp_path / "kit", wheel=own).code == 0
    assert f"tiny_compiled-1.0-{tag}.whl" in wheels(tmp_path / "kit")


def test_only_this_version_of_vcs_runtime_is_packed(make_kit: Make, tmp_path: Path) -> None:
    other = write_own(tmp_path, version="0.0.9")
    message = refused(make_kit(tmp_path / "kit", wheel=other), tmp_path / "kit")
    assert "vcs_runtime-0.0.9-py3-none-any.whl: a kit holds the version that makes it" in message
    missing = tmp_path / "vcs_runtime-0.1.0-py3-none-any.whl"
    assert "No such file" in refused(make_kit(tmp_path / "kit", wheel=missing), tmp_path / "kit")


def test_a_licence_with_an_unsafe_name_stays_in_its_folder(
    make_kit: Make, index: Path, tmp_path: Path
) -> None:
    write_wheel(index, "tiny-unsafe", files={"../../LICENSE": "out"})
    own = write_own(tmp_path, requires=["tiny-unsafe"])
    assert make_kit(tmp_path / "kit", wheel=own).code == 0
    paths = [path for path in (tmp_path / "kit").rglob("LICENSE") if path.read_text() == "out"]
    assert paths == [tmp_path / "kit/licences/tiny-unsafe-1.0/LICENSE"]
    assert not list(tmp_path.glob("**/kit/LICENSE"))


def test_a_damaged_wheel_of_vcs_runtime_is_refused(
    make_kit: Make, own: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / own.name
    damaged.write_bytes(own.read_bytes()[:-30])
    message = refused(make_kit(tmp_path / "kit", wheel=damaged), tmp_path / "kit")
    assert f"{own.name} is damaged" in message


def test_a_bundle_that_cannot_score_is_refused(
    make_kit: Make, sat_bundle: Path, tmp_path: Path
) -> None:
    message = refused(make_kit(tmp_path / "kit", bundle=sat_bundle), tmp_path / "kit")
    assert "has no embedder, so that nothing can be scored with it" in message


def test_a_bundle_without_a_segmenter_is_refused(
    make_kit: Make, tiny_bundle: Path, tmp_path: Path
) -> None:
    bundle = Path(shutil.copytree(tiny_bundle, tmp_path / "embedder"))
    edit(bundle, lambda data: data.pop("segmenter"))
    message = refused(make_kit(tmp_path / "kit", bundle=bundle), tmp_path / "kit")
    assert "has no segmenter" in message
    assert "`vcs-runtime bundle make`" in message


def test_an_output_that_exists_is_left_alone(
    make_kit: Make, tmp_path: Path, tiny_bundle: Path
) -> None:
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit/mine").touch()
    done = make_kit(tmp_path / "kit")
    assert (done.code, done.stderr.count("\n")) == (2, 1)
    assert "exists already" in done.stderr
    assert [path.name for path in (tmp_path / "kit").iterdir()] == ["mine"]
    assert "is in the input" in make_kit(tiny_bundle / "kit").stderr


@pytest.mark.skipif(sys.platform != "linux", reason="uses coreutils")
def test_the_readme_of_a_kit_says_commands_that_work(kit: Path) -> None:
    readme = (kit / "README.txt").read_text()
    assert "sha256sum --check --quiet SHA256SUMS" in readme
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=kit, check=True)
    missing = [
        name
        for name in re.findall(r"^   (\S+?)/? {3,}\S", readme, re.M)
        if not (kit / name.strip(",")).exists()
    ]
    assert missing == []
