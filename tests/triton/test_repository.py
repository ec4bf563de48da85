"""What is exported, and what its model answers, without a server: this file is `pb_utils`."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from support.blocks import ROOT
from support.command_line import assert_refused, vcs
from support.stories import story
from vcs_runtime import Scorer, ScorerConfig
from vcs_runtime.cli import cli
from vcs_runtime.errors import BundleError, DeviceMemoryError, InputError
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.scoring.options import Options
from vcs_runtime.triton.backend import SCORES, TEXTS
from vcs_runtime.triton.repository import Deployment, write_repository

COUNTS = {"max_batch_size": 2**31 - 1, "queue_delay_us": 2**64 - 1, "instances": 2**31 - 1}
CALLERS: Any = SimpleNamespace(identity="mine", embed=lambda texts: texts)


class Tensor:
    def __init__(self, name: str, values: Any) -> None:
        self.name, self.values = name, values

    def as_numpy(self) -> Any:
        return self.values


class Request:
    def __init__(self, references: Sequence[bytes], generated: Sequence[bytes]) -> None:
        self.tensors = {
            name: Tensor(name, np.array([[text] for text in texts], np.object_))
            for name, texts in (("reference", references), ("generated", generated))
        }


@pytest.fixture
def pb_utils(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("triton_python_backend_utils")
    silent = SimpleNamespace(log_info=lambda line: None, log_error=lambda line: None)
    parts = {
        "Tensor": Tensor,
        "Logger": silent,
        "TritonError": str,
        "InferenceResponse": lambda output_tensors=(), error=None: SimpleNamespace(
            outputs={tensor.name: tensor.values for tensor in output_tensors}, error=error
        ),
        "get_input_tensor_by_name": lambda request, name: request.tensors[name],
    }
    for name, part in parts.items():
        setattr(module, name, part)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def parameters(config: Path) -> dict[str, str]:
    pairs = re.findall(
        r"^parameters \{ key: (\".*?\") value \{ string_value: (\".*\") \} \}$",
        config.read_text("utf-8"),
        re.M,
    )
    return {json.loads(key): json.loads(value) for key, value in pairs}


def loaded(folder: Path, kind: str = "CPU", number: str = "0") -> Any:
    """The model of a repository, initialised as the server does."""
    config = {
        "parameters": {
            key: {"string_value": v} for key, v in parameters(folder / "config.pbtxt").items()
        }
    }
    model = runpy.run_path(str(folder / "1/model.py"))["TritonPythonModel"]()
    model.initialize(
        {
            "model_config": json.dumps(config),
            "model_repository": str(folder),
            "model_version": "1",
            "model_instance_kind": kind,
            "model_instance_device_id": number,
        }
    )
    return model


@pytest.fixture
def model(repository: Path, pb_utils: ModuleType) -> Iterator[Any]:
    opened = loaded(repository / "vcs")
    yield opened
    opened.finalize()


def test_scores_are_those_of_the_scorer_to_the_last_bit(
    model: Any, tiny_bundle: Path, options: Options
) -> None:
    pairs = [(story(i), story(i + 50)) for i in range(5)]
    encoded = [(reference.encode(), generated.encode()) for reference, generated in pairs]
    requests = [
        Request(*zip(*part, strict=True)) for part in (encoded[:1], encoded[1:4], encoded[4:])
    ]
    responses = model.execute(requests)
    assert [len(response.outputs["vcs"]) for response in responses] == [1, 3, 1]
    with Scorer.open(tiny_bundle, "cpu") as scorer:
        expected = list(scorer.iter_scores(pairs, options))
    for name in SCORES:
        scores = np.concatenate([response.outputs[name] for response in responses])
        assert scores.dtype == np.float64
        assert scores.shape == (5, 1)
        assert scores[:, 0].tolist() == [getattr(result.scores, name) for result in expected]
    texts = {
        name: [value for one in responses for value in one.outputs[name][:, 0]] for name in TEXTS
    }
    assert texts == {
        "flags": [",".join(result.flags).encode() for result in expected],
        "error": [b""] * 5,
        "signature": [result.signature.encode() for result in expected],
    }


def test_flags_say_why_a_vcs_is_0(model: Any) -> None:
    short, long = b"A dog runs. A man sits.", story(1, 9).encode()
    [response] = model.execute([Request([short, short], [long, short])])
    assert response.outputs["vcs"][0, 0] == 0.0
    assert response.outputs["flags"][:, 0].tolist() == [b"order_undefined", b"single_chunks"]


def test_every_output_is_declared_and_the_readme_names_it(repository: Path, model: Any) -> None:
    config = (repository / "vcs/config.pbtxt").read_text("utf-8")
    declared = dict(
        re.findall(
            r'^output \{ name: "(\w+)" data_type: TYPE_(\w+) dims: \[ 1 \] \}$', config, re.M
        )
    )
    assert declared == {**dict.fromkeys(SCORES, "FP64"), **dict.fromkeys(TEXTS, "STRING")}
    [response] = model.execute([Request([b"A dog runs."], [b"A dog runs."])])
    assert {name: values.dtype.kind for name, values in response.outputs.items()} == {
        name: "f" if kind == "FP64" else "O" for name, kind in declared.items()
    }
    readme = (repository / "README.md").read_text("utf-8")
    assert not [name for name in declared if not re.search(rf"\b{name}\b", readme)]


def test_the_request_of_the_readme_and_the_warm_up_is_one_with_a_vcs_above_0(
    repository: Path,
) -> None:
    pages = repository / "README.md", ROOT / "docs/guide/triton.md"
    bodies = [re.findall(r"-d '(.*?)'$", page.read_text("utf-8"), re.M | re.S) for page in pages]
    [request], [shown] = ([json.loads(body) for body in found] for found in bodies)
    assert shown == request
    texts = {tensor["name"]: tensor["data"] for tensor in request["inputs"]}
    for name, [text] in texts.items():
        assert (repository / "vcs/warmup" / name).read_bytes()[4:] == text.encode()
    with Scorer.open("default", "cpu") as scorer:
        assert scorer.score(texts["reference"][0], texts["generated"][0]).vcs > 0.5


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"", "generated: the text is empty"),
        (b"...", "generated: the text has only punctuation"),
        (b"A dog\xff runs.", "generated: the text holds a lone surrogate U+DCFF (at position 5)"),
        (b"A dog\0 runs.", "generated: the text holds a NUL character (at position 5)"),
    ],
)
def test_a_bad_item_has_an_error_and_harms_nobody_in_its_batch(
    model: Any, bad: bytes, why: str
) -> None:
    good = story(1).encode(), story(2).encode()
    [alone] = model.execute([Request([good[0]], [good[1]])])
    first, mixed = model.execute(
        [Request([good[0]], [good[1]]), Request([good[0], good[0]], [bad, good[1]])]
    )
    assert mixed.outputs["error"][:, 0].tolist() == [why.encode(), b""]
    assert np.isnan(mixed.outputs["vcs"][0, 0])
    assert alone.outputs["vcs"] == first.outputs["vcs"] == mixed.outputs["vcs"][1:]


def test_a_request_too_large_for_the_device_does_not_fail_the_others(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = Embedder.prepare

    def short_of_memory(self: Embedder, texts: Any) -> Any:
        texts = list(texts)
        if any(len(text) > 1000 for text in texts):
            raise DeviceMemoryError("the embedder: out of memory")
        return prepare(self, texts)

    monkeypatch.setattr(Embedder, "prepare", short_of_memory)
    text = story(1).encode()
    fine, large = model.execute([Request([text], [text]), Request([text], [text * 20])])
    assert fine.outputs["vcs"] > 0.99
    assert fine.error is None
    assert large.error == "DeviceMemoryError: the embedder: out of memory"


def test_a_copied_bundle_moves_with_the_repository(
    tiny_bundle: Path, tmp_path: Path, pb_utils: ModuleType
) -> None:
    config = ScorerConfig(tiny_bundle, "cpu", threads=1)
    write_repository(tmp_path / "models", Deployment("mine", config, copy_bundle=True))
    (tmp_path / "models").rename(tmp_path / "elsewhere")
    assert parameters(tmp_path / "elsewhere/mine/config.pbtxt")["bundle"] == "bundle"
    model = loaded(tmp_path / "elsewhere/mine")
    [response] = model.execute(
        [Request([b"A man sits. A dog runs."], [b"A man sits. A dog runs."])]
    )
    assert response.outputs["vcs"] > 0.99
    model.finalize()


def test_a_gpu_is_the_servers_choice_of_number_and_is_never_replaced(
    tiny_bundle: Path, tmp_path: Path, pb_utils: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_repository(tmp_path / "models", Deployment(config=ScorerConfig(tiny_bundle, "cuda:1")))
    config = (tmp_path / "models/vcs/config.pbtxt").read_text()
    assert "instance_group { count: 1 kind: KIND_GPU gpus: [ 1 ] }" in config
    devices = []

    def refuse(config: ScorerConfig) -> Scorer:
        devices.append(config.device)
        raise BundleError("enough")

    monkeypatch.setattr(Scorer, "from_config", refuse)
    with pytest.raises(BundleError, match="enough"):
        loaded(tmp_path / "models/vcs", "GPU", "3")
    assert devices == ["cuda:3"]


def test_the_start_command_binds_every_port_to_the_loopback_unless_told_otherwise(
    repository: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    def bound(folder: Path) -> list[tuple[str, str]]:
        return re.findall(
            r"--(http|grpc|metrics)-address=(\S+)", (folder / "README.md").read_text()
        )

    assert bound(repository) == [(port, "127.0.0.1") for port in ("http", "grpc", "metrics")]
    write_repository(
        tmp_path / "open", Deployment(config=ScorerConfig(tiny_bundle), address="10.0.0.7")
    )
    assert bound(tmp_path / "open") == [(port, "10.0.0.7") for port in ("http", "grpc", "metrics")]


def test_a_repository_is_not_written_into_its_bundle(tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tiny_bundle)
    before = sorted(tiny_bundle.rglob("*"))
    done = vcs("triton", "export", tmp_path / "link/models", "--bundle", tiny_bundle)
    assert_refused(done, "models is in the input")
    assert sorted(tiny_bundle.rglob("*")) == before


def test_a_folder_with_something_in_it_is_left_alone(tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(InputError, match=f"{tmp_path} exists already: choose a new or"):
        write_repository(tmp_path, Deployment(config=ScorerConfig(tiny_bundle)))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("fails", ["a copied bundle", "the README"])
def test_an_export_into_an_empty_folder_that_failed_or_was_killed_can_be_repeated(
    fails: str, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / ".vcs.partial-0123").mkdir()
    deployment = Deployment(config=ScorerConfig(tiny_bundle), copy_bundle=True)
    failing = "copy_bundle" if fails == "a copied bundle" else "write_whole"
    with monkeypatch.context() as patched:
        patched.setattr(f"vcs_runtime.triton.repository.{failing}", fail)
        with pytest.raises(OSError, match="No space left"):
            write_repository(tmp_path, deployment)
    assert [path.name for path in tmp_path.iterdir()] == [".vcs.partial-0123"]
    write_repository(tmp_path, deployment)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".vcs.partial-0123", "README.md", "vcs"]
    assert not (tmp_path / "vcs" / "README.md").exists()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"name": "a/b"}, "name: 'a/b'"),
        ({"name": ""}, "name: ''"),
        ({"config": ScorerConfig(device="gpu")}, "device must be"),
        ({"config": ScorerConfig(embedder=CALLERS)}, "config: Triton serves only bundles"),
        (
            {"max_batch_size": 0},
            "max_batch_size must be a whole number from 1 to 2147483647, not 0",
        ),
        ({"queue_delay_us": -1}, "queue_delay_us must be a whole number from 0"),
        ({"instances": 0}, "instances must be a whole number from 1"),
        # More than the fields of Triton's configuration hold.
        *(
            ({name: most + 1}, f"{name} must be a whole number from")
            for name, most in COUNTS.items()
        ),
        ({"address": "a b"}, "address: 'a b'"),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        Deployment(**wrong)


def test_the_largest_numbers_of_a_configuration_are_written(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    write_repository(tmp_path, Deployment(config=ScorerConfig(tiny_bundle), **COUNTS))
    written = (tmp_path / "vcs/config.pbtxt").read_text()
    assert all(re.search(rf": {number}\b", written) for number in COUNTS.values())


@pytest.mark.parametrize(
    ("parameter", "number"),
    [
        ("scoring", "lct"),
        ("scoring", "chunk_size"),
        ("opening", "max_pair_gb"),
        ("opening", "cache_mb"),
    ],
)
@pytest.mark.parametrize("wrong", ["NaN", "-Infinity", "1e999"])
def test_a_model_whose_configuration_was_edited_to_no_number_is_not_loaded(
    repository: Path, tmp_path: Path, pb_utils: ModuleType, parameter: str, number: str, wrong: str
) -> None:
    shutil.copytree(repository, tmp_path / "models")
    config = tmp_path / "models/vcs/config.pbtxt"
    edited, count = re.subn(rf'(\\"{number}\\": )[^,}}]+', rf"\g<1>{wrong}", config.read_text())
    assert count == 1
    config.write_text(edited)
    with pytest.raises(ValueError, match=f"^{number} must be "):
        loaded(tmp_path / "models/vcs")


def test_the_command_writes_all_options_with_absolute_paths(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny_bundle.parent)
    out = tmp_path / "models"
    done = CliRunner().invoke(
        cli,
        [
            *f"triton export {out} --bundle {tiny_bundle.name} --preset paper".split(),
            *"--device cpu --segmenter rules --threads 2 --cache vectors".split(),
            *"--max-batch-size 7 --queue-delay-us 500 --instances 2 --name story".split(),
            "--clean",
            "think,markdown",
        ],
    )
    assert done.exit_code == 0, done.output
    written = parameters(out / "story/config.pbtxt")
    assert written["bundle"] == str(tiny_bundle.resolve())
    assert written["device"] == "cpu"
    opening = json.loads(written["opening"])
    assert opening == {
        "segmenter": "rules",
        "threads": 2,
        "gpu_memory_gb": None,
        "cache_mb": 256,
        "batch_invariant": False,
        "max_pair_gb": 1.0,
        "words": "default",
        "proof": True,
        "calibrated": False,
        "cache": str(tiny_bundle.parent / "vectors"),
    }
    scoring = json.loads(written["scoring"])
    assert (scoring["chunk_size"], scoring["params"]["lct"], scoring["short"]) == (3, 0.1, False)
    assert Options(clean=scoring["clean"]).clean == ("markdown", "think")
    config = (out / "story/config.pbtxt").read_text()
    for line in (
        "max_batch_size: 7",
        "max_queue_delay_microseconds: 500",
        "count: 2 kind: KIND_CPU",
    ):
        assert line in config


def test_the_command_refuses_what_is_wrong(tiny_bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "models"
    done = vcs("triton", "export", out, "--bundle", tiny_bundle, "--max-batch-size", 0)
    assert_refused(done, "max_batch_size must be a whole number from 1 to")
    with pytest.raises(BundleError, match="no such folder"):
        write_repository(out, Deployment(config=ScorerConfig(tmp_path / "nothing")))
    # What the server could not open, either.
    with pytest.raises(BundleError, match="no calibration"):
        write_repository(out, Deployment(config=ScorerConfig(tiny_bundle, calibrated=True)))
    with pytest.raises(BundleError, match="no learned segmenter"):
        write_repository(out, Deployment(config=ScorerConfig(tiny_bundle, segmenter="learned")))
    assert not out.exists()
