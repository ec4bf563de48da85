"""Attacks on whoever opens a bundle.

All are refused before ONNX Runtime or the tokenizer sees a file.

The attacker writes every byte of the bundle, `bundle.json` and its hashes included, unless the
attack is on a bundle in transit.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper

from support.changed_bundles import edit as edit_manifest
from support.changed_bundles import relist
from support.tiny_layouts import build_layout_bundle
from vcs_runtime import BundleError, Embedder
from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.bundle.onnx_check import check_onnx

MODEL, DATA, TOKENIZER = (
    "embedder/model.onnx",
    "embedder/model.onnx.data",
    "embedder/tokenizer.json",
)
Attack = Callable[[Path], object]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_layout_bundle(tmp_path_factory.mktemp("honest") / "bundle", "packed")


@pytest.fixture
def bundle(honest: Path, tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("what must not be read")
    return shutil.copytree(honest, tmp_path / "bundle")


def rewrite(path: str, content: bytes) -> Attack:
    def attack(bundle: Path) -> None:
        (bundle / path).write_bytes(content)
        relist(bundle)

    return attack


def edit(change: Callable[[ModelProto], object]) -> Attack:
    """Change the graph and hash it anew."""

    def attack(bundle: Path) -> None:
        model = onnx.load(bundle / MODEL, load_external_data=False)
        change(model)
        (bundle / MODEL).write_bytes(model.SerializeToString())
        relist(bundle)

    return attack


def raw(change: Callable[[bytes], bytes]) -> Attack:
    """Change the graph's bytes and hash them anew."""

    def attack(bundle: Path) -> None:
        (bundle / MODEL).write_bytes(change((bundle / MODEL).read_bytes()))
        relist(bundle)

    return attack


def append(content: bytes) -> Attack:
    return raw(lambda model: model + content)


def external(name: str = "w", **entries: str) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def twice(tensor: TensorProto) -> TensorProto:
    tensor.external_data.add(key="location", value="model.onnx.data")
    return tensor


def silent(tensor: TensorProto) -> TensorProto:
    tensor.ClearField("data_location")
    return tensor


def initializer(**entries: str) -> Attack:
    return edit(lambda model: model.graph.initializer.append(external(**entries)))


def weights(**entries: str) -> Attack:
    return initializer(location="model.onnx.data", **entries)


def operator(name: str, domain: str, **attributes: str) -> onnx.NodeProto:
    return helper.make_node(name, [], ["y"], domain=domain, **attributes)


def sub_graph(tensor: TensorProto, depth: int = 1) -> onnx.NodeProto:
    """An If whose branch holds `tensor`, or an If whose branch holds it, and so on."""
    graph = helper.make_graph([], "branch", [], [], initializer=[tensor])
    for _ in range(depth - 1):
        graph = helper.make_graph(
            [helper.make_node("If", ["c"], ["y"], then_branch=graph)], "branch", [], []
        )
    return helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)


def node(*nodes: onnx.NodeProto) -> Attack:
    return edit(lambda model: model.graph.node.extend(nodes))


def attributed(**attribute: Any) -> onnx.NodeProto:
    found = onnx.NodeProto(op_type="Identity", input=["x"], output=["y"])
    found.attribute.append(AttributeProto(name="value", **attribute))
    return found


def function(*nodes: onnx.NodeProto, domain: str = "own") -> Attack:
    def change(model: ModelProto) -> None:
        model.functions.append(helper.make_function(domain, "F", [], [], nodes, []))

    return edit(change)


def sparse(values: TensorProto, indices: TensorProto) -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(values=values, indices=indices, dims=[4])


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def link(path: str, hard: bool = False) -> Attack:
    def attack(bundle: Path) -> None:
        outside = bundle.parent / "outside"
        (bundle / path).rename(outside)
        (os.link if hard else os.symlink)(outside, bundle / path)

    return attack


def flip(bundle: Path) -> None:
    content = bytearray((bundle / DATA).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / DATA).write_bytes(content)


def fifo(bundle: Path) -> None:
    (bundle / TOKENIZER).unlink()
    os.mkfifo(bundle / TOKENIZER)


def unlisted(path: str) -> Attack:
    return lambda bundle: (bundle / path).write_bytes(b"x")


def manifest(change: Callable[[Any], object]) -> Attack:
    return lambda bundle: edit_manifest(bundle, change)


def embedder(**changed: object) -> Attack:
    return manifest(lambda data: data["embedder"].update(changed))


def listed_outside(path: str) -> Attack:
    return manifest(lambda data: data["files"][0].update(path=path))


def key_twice(bundle: Path) -> None:
    text = (bundle / MANIFEST).read_text()
    (bundle / MANIFEST).write_text(text.replace("{", '{"name": "x",', 1))


def other_format(bundle: Path) -> None:
    (bundle / MODEL).rename(bundle / "embedder/model.ort")
    relist(bundle)
    embedder(model="embedder/model.ort")(bundle)


def linked_data(bundle: Path) -> None:
    initializer(location="link")(bundle)
    (bundle / "embedder/link").symlink_to("/etc/passwd")


def half_tensor(start: bytes) -> bytes:
    """A node whose attribute has two tensors that readers merge: a location and an offset."""
    halves = [external(location="model.onnx.data"), external(offset="99999999", length="16")]
    attribute = b"".join(field(5, half.SerializeToString()) for half in halves)
    return start + field(7, field(1, field(4, b"Identity") + field(5, attribute)))


def without_unknown(bundle: Path) -> None:
    data = json.loads((bundle / TOKENIZER).read_text())
    del data["model"]["vocab"]["[UNK]"]
    rewrite(TOKENIZER, json.dumps(data).encode())(bundle)


def panicking(bundle: Path) -> None:
    data = json.loads((bundle / TOKENIZER).read_text())
    single = [{"SpecialToken": {"id": "X", "type_id": 0}}]
    unused = {"pair": [], "special_tokens": {}}
    data["post_processor"] = {"type": "TemplateProcessing", "single": single, **unused}
    rewrite(TOKENIZER, json.dumps(data).encode())(bundle)


FAR = external(location="/etc/passwd")
UP = external(location="../../secret")
GOOD = external(location="model.onnx.data", offset="0", length="16")

#: Attacks on tensors that lie in a file: what they name is "not the plain name of a file".
OTHER_FILES: dict[str, Attack] = {
    "external data upwards": initializer(location="../../secret"),
    "external data by an absolute path": initializer(location="/etc/passwd"),
    "external data by a path of another system": initializer(location="C:\\x"),
    "external data in a folder": initializer(location="x/../model.onnx.data"),
    "external data in this folder": initializer(location="./model.onnx.data"),
    "external data at an address of memory": initializer(
        location="*/_ORT_MEM_ADDR_/*", offset="140000000000000", length="16"
    ),
    "external data with a NUL": initializer(location="model.onnx.data\0"),
    "external data that say they are none": edit(
        lambda m: m.graph.initializer.append(silent(external(location="/etc/passwd")))
    ),
    # Where graphs may hide tensors.
    "in a sub-graph": node(sub_graph(FAR)),
    "in a sub-graph of a sub-graph": node(sub_graph(UP, depth=4)),
    "in one of several sub-graphs": node(
        attributed(graphs=[helper.make_graph([], "g", [], [], initializer=[FAR])])
    ),
    "in a Constant": node(attributed(t=FAR)),
    "in a list of tensors": node(attributed(tensors=[GOOD, FAR])),
    "in the values of a sparse attribute": node(attributed(sparse_tensor=sparse(FAR, GOOD))),
    "in the indices of a sparse attribute": node(attributed(sparse_tensor=sparse(GOOD, FAR))),
    "in a list of sparse tensors": node(attributed(sparse_tensors=[sparse(GOOD, UP)])),
    "in a sparse initializer": edit(lambda m: m.graph.sparse_initializer.append(sparse(FAR, GOOD))),
    "in a function": function(attributed(t=FAR)),
    "in a sub-graph of a function": function(sub_graph(FAR)),
    "in the default of a function's attribute": edit(
        lambda m: m.functions.add(name="F", domain="own").attribute_proto.append(
            AttributeProto(name="a", t=FAR)
        )
    ),
}

#: Listed paths of which "Expected a plain relative path" is said.
LISTED_PATHS = {
    "a listed path upwards": "../secret",
    "a listed path inside and upwards": "embedder/../../secret",
    "a listed absolute path": "/etc/passwd",
    "a listed path of another system": "embedder\\x",
    "a listed path with a line break": "a\nb",
}

ATTACKS: dict[str, tuple[Attack, str]] = {
    # The bundle in transit, or its folder.
    "one flipped bit": (flip, "is damaged"),
    "a file too long": (lambda b: os.truncate(b / DATA, 1 << 20), r"bytes, bundle\.json lists"),
    "a file cut short": (lambda b: os.truncate(b / DATA, 100), "has 100 bytes"),
    "a missing file": (lambda b: (b / TOKENIZER).unlink(), "is missing"),
    "an unlisted file": (unlisted("embedder/evil.so"), "evil.so is not listed"),
    "an unlisted hidden file": (unlisted(".hidden"), ".hidden is not listed"),
    "a link to a file": (link(TOKENIZER), "not a regular file"),
    "a link to a folder": (link("embedder"), "embedder is not listed"),
    "a link to the manifest": (link(MANIFEST), "no bundle.json"),
    "a pipe that blocks its reader": (fifo, "not a regular file"),
    # The manifest.
    "a manifest of 100 MB": (lambda b: os.truncate(b / MANIFEST, 10**8), "it is not a manifest"),
    "a manifest nested without end": (
        lambda b: (b / MANIFEST).write_text('{"a":' * 100_000),
        "cannot be read",
    ),
    "a newer schema": (manifest(lambda d: d.update(schema=5)), "this version reads only schemas"),
    "a key that stands twice": (key_twice, "twice"),
    "an unknown key": (manifest(lambda d: d.update(run="rm")), "unknown field `run`"),
    "a number that is none": (embedder(dimension=float("nan")), "NaN is not a number"),
    "a path twice but for its case": (
        manifest(lambda d: d["files"].append({**d["files"][0], "path": MODEL.upper()})),
        "listed twice",
    ),
    "vectors that fill the memory": (
        embedder(dimension=1 << 40),
        "embedder.dimension: Expected `int` <= 1048576",
    ),
    "a model that is no file of the bundle": (
        embedder(model="elsewhere/model.onnx"),
        "elsewhere/model.onnx is not in files",
    ),
    "a model by an absolute path": (
        embedder(model="/elsewhere/model.onnx"),
        "embedder.model: Expected a plain relative path",
    ),
    "a model in a format of ONNX Runtime's own": (other_format, "does not end in .onnx"),
    # External data.
    "external data in an unlisted file": (
        initializer(location="evil.bin"),
        "does not list",
    ),
    "external data beside the weights": (
        # Listed, but no part of the hash that the signature shows.
        initializer(location="tokenizer.json"),
        "'embedder/tokenizer.json', which bundle.json does not list as weights",
    ),
    "external data in the manifest": (
        initializer(location="bundle.json"),
        "does not list",
    ),
    "external data in a link": (linked_data, "link is not listed"),
    "external data behind the end": (weights(offset="99999999", length="16"), "beyond the end"),
    "external data that are too long": (weights(length="99999999"), "beyond the end"),
    "external data before the beginning": (
        weights(offset="-8"),
        "offset or length is not a number",
    ),
    "an offset that overflows": (weights(offset="18446744073709551616"), "is not a number"),
    "external data without a place": (initializer(offset="0"), "have the keys"),
    "external data without anything": (initializer(), "does not name"),
    "external data with two places": (
        edit(lambda m: m.graph.initializer.append(twice(external(location="/etc/passwd")))),
        "have the keys",
    ),
    "external data with unknown keys": (weights(prepacked_0="1;2;3"), "have the keys"),
    "in sub-graphs nested without end": (node(sub_graph(GOOD, depth=20)), "nested more than"),
    "in the initialisation of a training": (
        edit(lambda m: m.training_info.add().initialization.initializer.append(FAR)),
        "training information",
    ),
    "in two halves that readers merge": (raw(half_tensor), "occurs twice|have the keys"),
    "in a second graph that readers merge": (
        raw(lambda b: b + field(7, field(5, FAR.SerializeToString()))),
        "occurs twice|not the plain name",
    ),
    # Graphs that run what is no graph, or are none.
    "operators of a foreign library": (
        node(operator("Run", "evil.custom")),
        "the domain 'evil.custom'",
    ),
    "foreign operators in a sub-graph of a function": (
        function(operator("Run", "ai.onnx.contrib")),
        "'ai.onnx.contrib'",
    ),
    "an engine of a vendor": (
        node(operator("EPContext", "com.microsoft", ep_cache_context="/x")),
        "'EPContext' is not allowed",
    ),
    "a Python function": (
        node(operator("PythonOp", "com.microsoft")),
        "'PythonOp' is not allowed",
    ),
    "a graph that is text": (rewrite(MODEL, b"no protobuf"), "this is not an ONNX graph"),
    "a graph that is empty": (rewrite(MODEL, b""), "between 1 byte"),
    "a model without a graph": (rewrite(MODEL, field(2, b"producer")), "the file has no graph"),
    "a graph that is cut short": (raw(lambda b: b[:-3]), "this is not an ONNX graph"),
    "a length beyond the end": (append(b"\x3a" + varint(1 << 62)), "this is not an ONNX graph"),
    "a number that does not end": (append(b"\xff" * 100), "this is not an ONNX graph"),
    "a field whose number overflows": (append(varint(1 << 32 | 58) + b"\0"), "impossible number"),
    "a group, which readers skip": (append(b"\x3b\x3c"), "impossible type"),
    "a graph of another type": (append(b"\x38\x01"), "occurs twice|wrong type"),
    "a graph of more fields than any": (append(b"\x28\x01" * 1_000_001), "more than 1,000,000"),
    # The tokenizer.
    "a tokenizer that is none": (rewrite(TOKENIZER, b"{}"), "tokenizers cannot load it"),
    "a tokenizer that is no JSON": (
        rewrite(TOKENIZER, b"\x80\x04cposix\nsystem\n"),
        "cannot load it",
    ),
    "a tokenizer nested without end": (rewrite(TOKENIZER, b'{"a":' * 100_000), "cannot load it"),
    "a tokenizer at which the library panics": (panicking, "tokenizers cannot load it"),
    "a tokenizer without its token for what it does not know": (
        without_unknown,
        "cannot load it: .*UNK",
    ),
    "a tokenizer of an unknown kind": (
        rewrite(TOKENIZER, b'{"version": "1.0", "model": {"type": "Pickle"}}'),
        "cannot load it",
    ),
}
for name, attack in OTHER_FILES.items():
    ATTACKS[name] = (attack, "not the plain name of a file")
for name, path in LISTED_PATHS.items():
    ATTACKS[name] = (listed_outside(path), "Expected a plain relative path")


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_before_a_graph_is_loaded(
    bundle: Path, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("ONNX Runtime was given the graph")

    monkeypatch.setattr("vcs_runtime.inference.session.open_session", never)
    perform, says = ATTACKS[attack]
    perform(bundle)
    with pytest.raises(BundleError, match=says) as error:
        Embedder.open(bundle, device="cpu")
    assert str(bundle) in str(error.value)
    assert "\n" not in str(error.value)


def test_there_are_many() -> None:
    assert len(ATTACKS) >= 30


@pytest.mark.parametrize(
    "harmless",
    [
        edit(lambda model: model.graph.initializer.append(GOOD)),
        node(sub_graph(GOOD, depth=3)),
        node(attributed(t=GOOD), attributed(sparse_tensor=sparse(GOOD, GOOD))),
        function(attributed(t=GOOD)),
        edit(lambda model: model.opset_import.add(domain="ai.onnx.ml", version=3)),
        link(DATA, hard=True),
    ],
)
def test_what_is_harmless_passes(bundle: Path, harmless: Attack) -> None:
    harmless(bundle)
    check_onnx(
        bundle / MODEL, {path.name: path.stat().st_size for path in (bundle / "embedder").iterdir()}
    )


def test_hard_linked_weights_are_fine(bundle: Path) -> None:
    link(DATA, hard=True)(bundle)
    with Embedder.open(bundle, device="cpu") as embedder:
        assert embedder.embed(["dog"]).shape == (1, 48)


def test_a_functions_own_operators_pass(bundle: Path) -> None:
    function(attributed(t=GOOD))(bundle)
    node(helper.make_node("F", [], [], domain="own"))(bundle)
    check_onnx(bundle / MODEL, {"model.onnx.data": (bundle / DATA).stat().st_size})


def external_data(message: Any) -> Iterator[dict[str, str]]:
    """The external data of every tensor anywhere in a message, as protobuf's own reader sees it."""
    if isinstance(message, TensorProto) and message.data_location == TensorProto.EXTERNAL:
        yield {entry.key: entry.value for entry in message.external_data}
    for descriptor, value in message.ListFields():
        if descriptor.message_type:
            for child in [value] if hasattr(value, "ListFields") else value:
                yield from external_data(child)


def test_no_other_reader_finds_what_the_check_has_not_seen(bundle: Path) -> None:
    """Graphs with random errors: whatever passes names nothing but the listed file."""
    node(sub_graph(GOOD, depth=2), attributed(t=GOOD, sparse_tensor=sparse(GOOD, GOOD)))(bundle)
    function(attributed(tensors=[GOOD]))(bundle)
    original = (bundle / MODEL).read_bytes()
    places = [i for i in range(len(original)) if original.startswith(b"model.onnx.data", i)]
    size = (bundle / DATA).stat().st_size
    rng = random.Random(0)
    passed = parsed = 0
    for _ in range(500):
        content = bytearray(original)
        for _ in range(rng.choice((1, 1, 2, 4))):
            # Near the names of files errors matter most.
            at = (
                rng.choice(places) + rng.randint(-24, 40)
                if rng.random() < 0.7
                else rng.randrange(len(content))
            )
            content[at % len(content)] = rng.choice(
                (rng.randrange(256), 13 << 3 | 2, 7 << 3 | 2, 14 << 3, 1, 0)
            )
        (bundle / MODEL).write_bytes(content)
        try:
            check_onnx(bundle / MODEL, {"model.onnx.data": size})
        except BundleError:
            continue
        passed += 1
        try:
            model = onnx.load_model_from_string(bytes(content))
        except Exception:  # what protobuf refuses harms nobody
            continue
        parsed += 1
        for entries in external_data(model):
            assert entries["location"] == "model.onnx.data"
            assert int(entries.get("offset", 0)) + int(entries.get("length", 0)) <= size
    assert passed > 50
    assert parsed > 50
