"""The proof of a model: each planted defect is caught, and right models pass on every device."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace as replace_fields
from numpy.typing import NDArray

from support.changed_bundles import edit, relist
from support.command_line import vcs
from support.tiny_decoder import write_tiny_decoder
from vcs_export.checkpoint.recipe import recipes_folder
from vcs_export.families.build import Build, Quantization
from vcs_export.families.decoder import build_decoder_bundle
from vcs_export.write import BundleInfo
from vcs_runtime import Embedder, Scorer, Segmenter
from vcs_runtime.bundle.manifest import Proof
from vcs_runtime.bundle.opening import Bundle, open_bundle, unproved
from vcs_runtime.errors import BundleError, DeviceError, ModelError, ProofError, TextError
from vcs_runtime.inference import proof, session
from vcs_runtime.inference.served import ServedEmbedder

Array = NDArray[np.float32]
Change = Callable[[Array], Array]


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of records that no other test has filled."""
    monkeypatch.setattr(proof, "record_folder", lambda name: tmp_path / "home" / name)
    return tmp_path / "home/proofs"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each run of a model, from now on."""
    rows: list[int] = []
    real = session.run_session

    def counting(opened: Any, outputs: Any, inputs: Any, **options: Any) -> Any:
        results = real(opened, outputs, inputs, **options)
        rows.append(len(results[0]))
        return results

    monkeypatch.setattr(session, "run_session", counting)
    return rows


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    """Let every model answer with changed arrays."""

    def planted(change: Change) -> None:
        real = session.run_session

        def changed(*arguments: Any, **options: Any) -> list[Array]:
            first, *others = real(*arguments, **options)
            return [change(first.copy()), *others]

        monkeypatch.setattr(session, "run_session", changed)

    return planted


def unit(vectors: Array) -> Array:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def swap(rows: Array) -> Array:
    rows[[0, -1]] = rows[[-1, 0]]
    return rows


def in_half_overflowing(rows: Array) -> Array:
    with np.errstate(all="ignore"):
        big = (rows * np.float32(2e6)).astype(np.float16).astype(np.float32)
        return unit(big)


def saturated(rows: Array) -> Array:
    return unit(np.clip(rows, -0.05, 0.05))


def in_tf32(rows: Array) -> Array:
    """Cut mantissas to 10 bits, as tensor cores do with what they multiply."""
    return (rows.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def noisy_in_a_batch(rows: Array) -> Array:
    if len(rows) == 1:
        return rows
    return unit(rows + np.float32(0.01) * np.roll(rows, 1, axis=1))


DEFECTS = [swap, lambda rows: np.roll(rows, 1, axis=0), in_half_overflowing, saturated]
DEFECTS += [in_tf32, noisy_in_a_batch, lambda rows: -rows, lambda rows: rows[:, ::-1]]


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_device_that_computes_something_else_is_refused(
    tiny_bundle: Path, plant: Callable[[Change], None], defect: Change, records: Path
) -> None:
    plant(defect)
    with pytest.raises(ProofError) as refusal:
        Embedder.open(tiny_bundle, "cpu")
    message = str(refusal.value)
    assert "built-in text '" in message
    assert message.count("ort:") >= 1
    assert "--no-proof" in message
    assert not records.exists()
    with Embedder.open(tiny_bundle, "cpu", proof=False) as embedder:
        assert embedder.dimension


def test_a_refusal_names_text_figure_limit_and_both_versions(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    bundle = changed_weights(tiny_bundle, tmp_path, in_tf32)
    edit(
        bundle,
        lambda data: data["embedder"]["proof"].update(environment="ort-cpu ort:0.9"),
        keep_proofs=True,
    )
    with pytest.raises(DeviceError) as refusal:
        Embedder.open(bundle, "cpu")
    message = str(refusal.value)
    for part in ("built-in text '", "differs by ", "at most 0.0001 is allowed", "ort:0.9 in fp32"):
        assert part in message
    assert message.count("ort:") == 2


def changed_weights(bundle: Path, folder: Path, change: Change, part: str = "embedder") -> Path:
    """Copy a bundle, and change the weights of a model of it; its hashes are right."""
    copy = folder / "changed"
    shutil.copytree(bundle, copy)
    path = copy / part / "model.onnx.data"
    weights = np.fromfile(path, np.float32)
    change(weights).tofile(path)
    relist(copy, keep_proofs=True)
    return copy


def scale_a_layer(weights: Array) -> Array:
    """Scale two of a hundred parts of the weights by 3 %."""
    start = len(weights) // 2
    weights[start : start + len(weights) // 50] *= np.float32(1.03)
    return weights


@pytest.mark.parametrize("change", [in_tf32, scale_a_layer])
def test_wrong_weights_are_refused_though_their_hashes_are_right(
    tiny_bundle: Path, tmp_path: Path, change: Change
) -> None:
    with pytest.raises(ProofError, match="files or settings were changed after the proof"):
        Embedder.open(changed_weights(tiny_bundle, tmp_path, change), "cpu")


@pytest.mark.parametrize("device", ["cpu", "openvino:fp32", "openvino"])
def test_right_devices_pass(tiny_bundle: Path, whole_bundle: Path, device: str) -> None:
    with Embedder.open(tiny_bundle, device) as embedder:
        assert embedder.embed(["a dog"]).shape == (1, embedder.dimension)
    with Segmenter.open(whole_bundle, device, use="learned") as segmenter:
        assert segmenter.split(["a dog runs a man falls"])


@pytest.mark.parametrize("precision", ["fp16", "int8"])
@pytest.mark.parametrize("device", ["cpu", "openvino:fp32", "openvino"])
def test_right_precisions_pass(tmp_path: Path, precision: str, device: str) -> None:
    bundle = tiny_decoder(tmp_path, precision)
    assert unproved(open_bundle(bundle)) == []
    with Embedder.open(bundle, device) as embedder:
        assert np.isfinite(embedder.embed(["a dog"])).all()


def tiny_decoder(folder: Path, precision: str) -> Path:
    write_tiny_decoder(folder / "qwen3", "qwen3")
    quantization = Quantization(precision, device="cpu", least_cosine=-1, most_change=1)
    info = BundleInfo("tiny", "CC0-1.0", "random numbers")
    build = Build(folder / "qwen3", folder / "bundle", info, quantization, report=print)
    return build_decoder_bundle(build)


@pytest.mark.parametrize("device", ["cpu", "openvino:fp32"])
def test_the_limit_of_fp32_lies_between_right_kernels_and_tf32(
    tiny_bundle: Path, tmp_path: Path, device: str
) -> None:
    limit = proof.VECTORS["fp32"]
    right = distance(open_bundle(tiny_bundle), device)
    wrong = distance(open_bundle(changed_weights(tiny_bundle, tmp_path, in_tf32)), device)
    assert right < limit / 4
    assert limit * 2 < wrong


def distance(bundle: Bundle, device: str) -> float:
    """Return the largest distance of a vector from the proof of a bundle."""
    assert bundle.manifest.embedder
    assert bundle.manifest.embedder.proof
    with Embedder.open(bundle, device, proof=False) as embedder:
        vectors = np.array(embedder.run_each(proof.built_in_texts()))
    recorded = np.frombuffer(bundle.manifest.embedder.proof.values, "<f4")
    return float(np.linalg.norm(vectors - recorded.reshape(vectors.shape), axis=1).max())


def test_a_later_opening_runs_nothing(
    tiny_bundle: Path, runs: list[int], records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Embedder.open(tiny_bundle, "cpu").close()
    assert len(runs) > len(proof.built_in_texts())
    assert max(runs) > 2  # a batch of different texts
    assert len(list(records.iterdir())) == 1
    runs.clear()
    Embedder.open(tiny_bundle, "cpu").close()
    assert runs == []
    # Another processor, library or release is not proved by it.
    for name in ("_machine", "environment"):
        real = getattr(proof, name)
        other = "another" if name == "_machine" else ["another"]
        monkeypatch.setattr(proof, name, lambda *_, other=other: other)
        Embedder.open(tiny_bundle, "cpu").close()
        assert runs
        runs.clear()
        monkeypatch.setattr(proof, name, real)


def test_without_a_folder_for_records_the_proof_is_repeated(
    tiny_bundle: Path, runs: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("in place of a folder")
    for folder in (None, file / "proofs", tmp_path / ("x" * 300)):
        monkeypatch.setattr(proof, "record_folder", lambda name, folder=folder: folder)
        runs.clear()
        for _ in range(2):
            Embedder.open(tiny_bundle, "cpu").close()
        assert len(runs) > 2 * len(proof.built_in_texts())


def test_openings_at_the_same_time_agree(tiny_bundle: Path, records: Path) -> None:
    errors: list[BaseException] = []

    def opening() -> None:
        try:
            Embedder.open(tiny_bundle, "cpu", 1).close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=opening) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(list(records.iterdir())) == 1


def test_a_segmenter_is_proved_when_it_is_opened(
    sat_bundle: Path, mixed_bundle: Path, plant: Callable[[Change], None]
) -> None:
    with Segmenter.open(mixed_bundle, "cpu") as lazy:
        plant(lambda logits: logits + np.float32(1))
        with pytest.raises(ProofError, match="the built-in text '"):
            Segmenter.open(sat_bundle, "cpu")
        Segmenter.open(sat_bundle, "cpu", proof=False).close()
        assert lazy.split(["A dog runs. A man falls."])
        with pytest.raises(ProofError):  # the first text that needs the model
            lazy.split(["a dog runs a man falls"])


def test_a_scorer_passes_it_on(
    tiny_bundle: Path, plant: Callable[[Change], None], tmp_path: Path
) -> None:
    plant(swap)
    with pytest.raises(ProofError):
        Scorer.open(tiny_bundle, "cpu")
    Scorer.open(tiny_bundle, "cpu", proof=False).close()
    story = tmp_path / "story.txt"
    story.write_text("A dog runs. A man falls.")
    command = ("score", story, story, "--bundle", tiny_bundle, "--device", "cpu", "--no-cache")
    refused = vcs(*command)
    assert refused.code == 2
    assert "built-in text" in refused.stderr
    assert vcs(*command, "--no-proof").code == 0


def test_an_older_bundle_opens_as_before(
    tiny_bundle: Path, tmp_path: Path, runs: list[int]
) -> None:
    old = tmp_path / "old"
    shutil.copytree(tiny_bundle, old)
    edit(old, lambda data: (data["embedder"].pop("proof"), data.update(schema=3)), keep_proofs=True)
    Embedder.open(old, "cpu").close()
    assert runs == []
    report = json.loads(vcs("doctor", "--json", "--bundle", old).stdout)
    assert f"missing for its embedder: `vcs-runtime export verify {old}`" in report["proof"]
    done = vcs("export", "verify", old)
    assert done.code == 0, done.stderr
    assert "proof of the embedder: added to bundle.json, by ort-cpu" in done.stdout
    mended, whole = (open_bundle(each).manifest.embedder for each in (old, tiny_bundle))
    assert mended
    assert whole
    assert mended.proof == whole.proof
    assert "proof" not in json.loads(vcs("doctor", "--json", "--bundle", old).stdout)


def test_verify_compares_and_renews(
    whole_bundle: Path, tmp_path: Path, plant: Callable[[Change], None]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(whole_bundle, copy)
    assert (
        "ok     proof of the segmenter: same as on ort-cpu" in vcs("export", "verify", copy).stdout
    )
    edit(copy, lambda data: data["embedder"].update(max_tokens=24), keep_proofs=True)
    with pytest.raises(ProofError, match="vcs-runtime export verify"):
        Embedder.open(copy, "cpu")
    assert "proof of the embedder: added" in vcs("export", "verify", copy).stdout
    Embedder.open(copy, "cpu").close()
    plant(lambda rows: rows[..., ::-1] if rows.ndim == 2 else rows + 1)
    done = vcs("export", "verify", copy)
    assert done.code == 1
    assert "FAILED proof of the embedder: bundle" in done.stdout
    assert "FAILED proof of the segmenter: bundle" in done.stdout


def test_verify_takes_a_bundle_of_a_segmenter_alone(sat_bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(sat_bundle, copy)
    edit(copy, lambda data: data["segmenter"]["model"].pop("proof"), keep_proofs=True)
    done = vcs("export", "verify", copy)
    assert done.code == 0, done.stderr
    assert done.stdout.startswith("ok     proof of the segmenter: added to bundle.json")
    assert open_bundle(copy).manifest == open_bundle(sat_bundle).manifest


def test_an_export_says_where_it_makes_no_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tiny_decoder(tmp_path / "bf16", "bf16")  # no kernel of a CPU takes it
    assert unproved(open_bundle(bundle)) == ["embedder"]
    monkeypatch.setattr("vcs_export.checks.proofs.MOST_BYTES", 1)
    assert unproved(open_bundle(tiny_decoder(tmp_path / "large", "fp16"))) == ["embedder"]
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2
    assert all("`vcs-runtime export verify` adds it" in line for line in said)
    assert vcs("export", "verify", bundle, "--device", "openvino").code == 0
    Embedder.open(bundle, "openvino").close()


def test_the_proofs_of_the_project_are_of_the_models_that_pages_name() -> None:
    recorded = json.loads((recipes_folder() / "proofs.json").read_text())
    assert sorted(digits[:4] for digits in recorded) == ["4e4b", "4ef2", "51c6"]  # of all pages
    for digits, values in recorded.items():
        assert msgspec.convert(values, Proof).model == digits


@pytest.mark.parametrize("place", [0, 1000, -3])
def test_a_damaged_proof_is_the_bundles_fault(
    tiny_bundle: Path, tmp_path: Path, place: int
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_bundle, copy)

    def damage(data: dict[str, Any]) -> None:
        values = list(data["embedder"]["proof"]["values"])
        values[place] = "A" if values[place] != "A" else "B"
        data["embedder"]["proof"]["values"] = "".join(values)

    edit(copy, damage, keep_proofs=True)
    with pytest.raises(BundleError, match=r"embedder.proof: .*damaged"):
        open_bundle(copy)


def test_a_proof_changes_neither_hash_nor_signature(tiny_bundle: Path, whole_bundle: Path) -> None:
    bundle = open_bundle(tiny_bundle)
    spec = bundle.manifest.embedder
    assert spec
    assert bundle.model_hash(spec) == bundle.model_hash(replace_fields(spec, proof=None))
    whole = open_bundle(whole_bundle).manifest  # `bundle make` carries proofs along
    assert whole.embedder
    assert whole.embedder.proof == spec.proof
    assert unproved(open_bundle(whole_bundle)) == []


def test_a_proof_of_other_texts_counts_as_none(
    tiny_bundle: Path, tmp_path: Path, runs: list[int]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_bundle, copy)
    edit(copy, lambda data: data["embedder"]["proof"].update(texts=99), keep_proofs=True)
    Embedder.open(copy, "cpu").close()
    assert runs == []
    assert unproved(open_bundle(copy)) == ["embedder"]


def test_the_texts_are_what_the_page_says() -> None:
    texts = proof.built_in_texts()
    assert len(texts) == 8
    assert len(set(texts)) == 7
    assert len(texts[0].split()) == 1
    assert len(texts[-1].split()) > 250  # beyond 256 tokens, with the marks and special tokens
    assert any(not text.isascii() for text in texts)
    assert sum(len(text.encode()) for text in texts) < 4096


class Server:
    """The answers of a server, by a model of this process."""

    def __init__(self, model: Embedder, change: Change = lambda rows: rows) -> None:
        self.model = model
        self.change = change
        self.asked: list[int] = []

    def embed(self, embedder: ServedEmbedder, texts: list[str]) -> list[list[float]]:
        self.asked.append(len(texts))
        if any(len(text) > 1000 for text in texts):
            raise TextError("this server takes short texts")
        answer = self.change(np.array(self.model.run_each(texts)))
        return answer.tolist()  # type: ignore[no-any-return]


@pytest.fixture
def server(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Embedder.open(tiny_bundle, "cpu", proof=False) as model:
        serving = Server(model)
        monkeypatch.setattr(ServedEmbedder, "embed", lambda *given: serving.embed(*given))
        yield serving


def opened(bundle: Path, model: str = "m", **options: Any) -> Scorer:
    served = ServedEmbedder("http://127.0.0.1:9/v1", model)
    return Scorer.open(bundle, "cpu", embedder=served, segmenter="rules", **options)


def test_a_server_that_permutes_its_batch_is_refused(server: Server, tiny_bundle: Path) -> None:
    server.change = lambda rows: np.roll(rows, 1, axis=0)
    with pytest.raises(ProofError, match="alone and in a batch"):
        opened(tiny_bundle)
    opened(tiny_bundle, proof=False).close()


def test_a_served_model_is_held_to_its_first_answers(
    server: Server, tiny_bundle: Path, records: Path
) -> None:
    opened(tiny_bundle).close()
    assert server.asked == [1] * 8 + [7]  # it refuses the long text
    [file] = records.iterdir()
    server.change = lambda rows: unit(rows + np.float32(0.002))  # another kernel
    opened(tiny_bundle).close()
    server.change = lambda rows: rows[:, ::-1]
    with pytest.raises(ProofError, match="if the change was intended, delete") as refusal:
        opened(tiny_bundle)
    assert str(file) in str(refusal.value)
    server.change = lambda rows: rows[:, :8]
    with pytest.raises(ProofError, match="differs by inf"):
        opened(tiny_bundle)
    opened(tiny_bundle, "another").close()
    for content in (b"", b"{", b"[]", file.read_bytes()[:-5]):
        file.write_bytes(content)
        opened(tiny_bundle).close()
        assert len(file.read_bytes()) > 100


def test_a_server_that_cannot_be_asked_is_named(tiny_bundle: Path) -> None:
    served = ServedEmbedder("http://127.0.0.1:9/v1", "m")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vcs_runtime.inference.served._PAUSES", ())
        with pytest.raises(ModelError, match="127.0.0.1:9"):
            Scorer.open(tiny_bundle, "cpu", embedder=served, segmenter="rules")
