"""BERTScore's options: another encoder, an inner layer, idf weights, baselines; refusals."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from support.checkpoints.bert import write_tiny_checkpoint
from support.experiments import comparison
from support.numpy_bert import load, transform
from support.stories import read_lines, story
from support.tiny_layouts import build_layout_bundle
from support.tiny_sentence import write_tiny_family
from support.tiny_tokenizers import roberta_tokenizer
from vcs_experiments.metrics.bertscore import (
    BERTScore,
    States,
    TokenIdf,
    TokenStates,
    bertscore,
    read_baseline,
)
from vcs_experiments.metrics.corpus import Corpus
from vcs_export.families.build import Build, EmbedderOptions
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.write import BundleInfo
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.errors import BundleError, InputError
from vcs_runtime.inference.device import choose_device

COLUMNS = ("BERTScore-P", "BERTScore-R", "BERTScore-F1")
INFO = BundleInfo("other", "CC0-1.0", "random")


def states_of(bundle: Path, layer: int | None = None) -> TokenStates:
    return TokenStates(open_bundle(bundle), choose_device("cpu"), 1, layer)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder of three layers that cuts texts at its window."""
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("other"), layers=3, seed=5)
    options = EmbedderOptions(long_text="truncate_text")
    return build_sentence_bundle(Build(folder, folder / "bundle", INFO), options)


@pytest.mark.parametrize("layer", [0, 1, 2, 3, None])
def test_each_layer_gives_its_own_states(other: Path, layer: int | None) -> None:
    text = story(3, 2)
    states = states_of(other, layer).get([text])[text]
    config, tensors = load(other.parent, "bert.")
    ids = states.ids.tolist()
    wanted = transform(
        tensors,
        config | {"num_hidden_layers": 3 if layer is None else layer},
        ids,
        list(range(len(ids))),
        np.ones((len(ids), len(ids)), np.bool_),
    )
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(states.vectors, wanted, rtol=0, atol=2e-6)
    assert states.counted.sum() == len(ids) - 2


def test_openvino_ends_at_that_layer_too(other: Path) -> None:
    pytest.importorskip("openvino")
    text = story(4, 1)
    shown = TokenStates(open_bundle(other), choose_device("openvino:fp32"), 1, 2).get([text])[text]
    np.testing.assert_allclose(
        shown.vectors, states_of(other, 2).get([text])[text].vectors, atol=1e-5
    )


def test_words_of_roberta_begin_with_their_space(tmp_path: Path) -> None:
    folder = write_tiny_family(tmp_path, "xlm-roberta")
    tokenizer = roberta_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    words = tensors["embeddings.word_embeddings.weight"]
    rows = tokenizer.get_vocab_size()
    tensors["embeddings.word_embeddings.weight"] = np.resize(words, (rows, words.shape[1]))
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": rows}))
    states = states_of(build_sentence_bundle(Build(folder, tmp_path / "bundle", INFO)))
    assert states.token_ids(" the man ") == tokenizer.encode(" the man").ids
    assert (
        states.token_ids("the man")
        == tokenizer.encode(" the man").ids
        != tokenizer.encode("the man").ids
    )


def test_rare_tokens_weigh_more() -> None:
    idf = TokenIdf([[1, 2, 2, 9], [1, 3, 9], [1, 9]])
    assert idf.weights(np.array([1, 2, 3, 7])).tolist() == [
        0,
        math.log(2),
        math.log(2),
        math.log(4),
    ]
    reference = States(np.eye(2, dtype=np.float32), np.array([True, True]), np.array([2, 7]))
    generated = States(np.array([[0.6, 0.8]], np.float32), np.array([True]), np.array([3]))
    weights = (math.log(2), math.log(4))
    recall = (0.6 * weights[0] + 0.8 * weights[1]) / sum(weights)
    scores = bertscore(reference, generated, idf)
    assert (scores["BERTScore-P"], scores["BERTScore-R"]) == pytest.approx((0.8, recall))
    # A token of every text weighs nothing, so this text has no score.
    everywhere = States(generated.vectors, generated.counted, np.array([1]))
    assert set(bertscore(reference, everywhere, idf).values()) == {0.0}


def test_idf_is_over_the_references_that_an_experiment_takes(other: Path) -> None:
    states = states_of(other)
    corpus = Corpus.of([(story(1), story(2)), (story(3), story(4))])
    metric = BERTScore(states, corpus)
    scores = {count: metric.scores([story(1)], story(9), count)[0] for count in (1, 2)}
    found = states.get([story(1), story(9)])
    for count, texts in ((1, (1, 3)), (2, (1, 2, 3, 4))):
        idf = TokenIdf(states.token_ids(story(i)) for i in texts)
        assert scores[count] == bertscore(found[story(1)], found[story(9)], idf)
    assert scores[1] != scores[2] != bertscore(found[story(1)], found[story(9)])


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_baseline_becomes_0(tmp_path: Path, separator: str) -> None:
    rows = [["LAYER", "P", "R", "F"], ["0", "0.1", "0.2", "0.3"], ["7", "0.5", "0.6", "0.8"]]
    (tmp_path / "base.tsv").write_text("\n".join(separator.join(row) for row in rows))
    baseline = read_baseline(tmp_path / "base.tsv", 7)
    scores = baseline.rescaled(dict(zip(COLUMNS, (0.5, 1.0, 0.6), strict=True)))
    assert tuple(scores.values()) == pytest.approx((0.0, 1.0, -1.0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("LAYER,P,R\n1,1,1\n", "its first line must be LAYER,P,R,F"),
        ("", "its first line must be LAYER,P,R,F"),
        ("LAYER,P,R,F\n2,.1,.1,.1\n", "no baseline for layer 1"),
        ("LAYER,P,R,F\n1,.1,.1\n", "line 2: must be a layer and three numbers"),
        ("LAYER,P,R,F\n0,.1,.1,.1\n1,.1,x,.1\n", "line 3: must be a layer and three numbers"),
        ("LAYER,P,R,F\n1,.1,1,.1\n", "line 2: a baseline must be at least -1 and less than 1"),
        ("LAYER,P,R,F\n1,.1,nan,.1\n", "line 2: a baseline must be"),
        ("\xff", "not UTF-8"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "base.tsv"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=message) as raised:
        read_baseline(path, 1)
    assert str(path) in str(raised.value)


def test_the_command_takes_another_encoder_with_all_settings(
    experiment: Any, other: Path, tmp_path: Path
) -> None:
    data = comparison(tmp_path / "data")
    (tmp_path / "base.tsv").write_text("LAYER,P,R,F\n1,0.1,0.2,0.3\n2,0.4,0.5,0.6\n")
    done = experiment(
        *f"corruption --data {data} --bertscore {other} --bertscore-layer 2".split(),
        *f"--bertscore-idf --bertscore-baseline {tmp_path}/base.tsv".split(),
    )
    assert done.exit_code == 0, done.output
    lines = {line["id"]: line for line in read_lines(tmp_path / "out/pairs.jsonl")}
    scenes = [json.loads(path.read_text()) for path in sorted((data / "comparison").iterdir())]
    corpus = Corpus.of([scene["ground_truth"]] for scene in scenes)
    metric = BERTScore(
        states_of(other, 2), corpus, read_baseline(tmp_path / "base.tsv", 2), named=True
    )
    case = scenes[1]["categories"][0]["test_cases"][1]
    [wanted] = metric.scores([scenes[1]["ground_truth"]], case["description"], None)
    line = lines[f"1/{case['name']}"]
    assert {column: line[column] for column in COLUMNS} == wanted
    fields = line["signature"].split("|")
    assert metric.signature in fields
    assert metric.signature.startswith(f"bertscore:layer-2/idf-{corpus.identity}/baseline@")
    assert "/other@" in metric.signature
    assert metric.signature.endswith("/truncate_text-32/fp32")
    assert "bertscore:last-layer" not in fields


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--bertscore-layer", 9), "its encoder has no layer 9, only the layers 0 to 2"),
        (("--bertscore", "PACKED"), "has no vectors of single tokens"),
        (("--bertscore", "nowhere"), "nowhere"),
        (("--bertscore-baseline", "nowhere.tsv"), "nowhere.tsv"),
    ],
)
def test_what_the_user_chose_is_refused_and_not_left_out(
    experiment: Any, tmp_path: Path, options: tuple[object, ...], message: str
) -> None:
    packed = build_layout_bundle(tmp_path / "packed", "packed")
    options = tuple(packed if option == "PACKED" else option for option in options)
    done = experiment("corruption", "--data", comparison(tmp_path / "data"), *options)
    assert isinstance(done.exception, BundleError | InputError)
    assert message in str(done.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("layer", ["-1", "x"])
def test_a_layer_is_a_number_from_0_on(experiment: Any, tmp_path: Path, layer: str) -> None:
    done = experiment("corruption", "--data", tmp_path, "--bertscore-layer", layer)
    assert done.exit_code == 2
    assert "--bertscore-layer" in done.stderr
