"""The shapes in which TRL and verl ask, and what they get for what cannot be scored."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.stories import story
from vcs_numba import Params
from vcs_runtime import BundleError, DeviceError, Scorer, ScorerConfig, training
from vcs_runtime.scoring.score_table import SMALLER_IS_BETTER
from vcs_runtime.training import TextMetric, TrainingScorer, compute_score

TEXT, OTHER = story(1), story(2)


def turn(content: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": content}


@pytest.fixture
def rewards(config: ScorerConfig) -> TrainingScorer:
    return TrainingScorer(config)


def test_rewards_are_the_scorers_scores_in_order(rewards: TrainingScorer, scorer: Scorer) -> None:
    completions = [story(i) for i in range(10, 16)]
    references: list[Any] = [story(i // 3) for i in range(5)] + [[story(3), story(15)]]
    rewarded = rewards.reward_fn(
        ["p"] * 6, completions, reference=references, completion_ids=[[1]] * 6
    )
    assert rewarded == [
        scorer.score(*pair).margin for pair in zip(references, completions, strict=True)
    ]
    assert rewarded[5] > 0.99


@pytest.mark.parametrize(
    "completion",
    [
        [turn(OTHER)],
        [turn("earlier words"), turn("42", "tool"), turn(OTHER)],
        [
            turn(
                [
                    {"type": "image"},
                    {"type": "text", "text": OTHER[:9]},
                    {"type": "text", "text": OTHER[9:]},
                ]
            )
        ],
    ],
)
def test_of_a_conversation_the_assistants_last_message_counts(
    rewards: TrainingScorer, scorer: Scorer, completion: Any
) -> None:
    expected = scorer.score(TEXT, OTHER).margin
    assert rewards.reward_fn([[turn("Describe.", "user")]], [completion], reference=[TEXT]) == [
        expected
    ]


@pytest.mark.parametrize(
    "completion",
    ["", "...", "a\0b.", "\ud800.", None, 7, [], [turn(None)], [turn("a.", "user")], ["text"]],
)
def test_a_row_that_cannot_be_scored_has_the_lowest_reward_and_the_others_are_scored(
    rewards: TrainingScorer, completion: Any, caplog: pytest.LogCaptureFixture
) -> None:
    logged: dict[str, float] = {}
    with caplog.at_level(logging.WARNING, "vcs_runtime.training"):
        first, second = rewards.reward_fn(
            ["p", "p"], [completion, TEXT], reference=[TEXT, TEXT], log_metric=logged.__setitem__
        )
    assert first == -1.0  # silence must not pay
    assert second is not None
    assert second > 0.99
    assert logged == {"vcs/unscorable": 0.5, "vcs/zeros": 0.0}
    assert "1 of 2 texts could not be scored: generated:" in caplog.text


@pytest.mark.parametrize(
    ("weights", "lowest"),
    [
        ({"substitution": -1.0}, -1.0),  # substitution is in [0, 1]
        ({"las": -1.0}, -1.0),  # LAS is in [-1, 1]
        ({"vcs": 1.0, "substitution": -0.5}, -0.5),
        ({"margin": 2.0, "replaced_names": -0.25}, -2.25),
    ],
)
def test_silence_does_not_pay_where_a_weight_is_negative(
    config: ScorerConfig, tiny_bundle: Path, weights: dict[str, float], lowest: float
) -> None:
    rewards = TrainingScorer(replace(config, words=str(tiny_bundle)), score=weights)
    silent, *spoken = rewards.reward_fn(["p"] * 3, ["", TEXT, OTHER], reference=[TEXT] * 3)
    assert silent == lowest
    assert all(reward is not None and reward >= lowest for reward in spoken)


@pytest.mark.parametrize("unscorable", [-2.0, None])
def test_errors_are_logged_once_and_may_have_a_reward(
    config: ScorerConfig, caplog: pytest.LogCaptureFixture, unscorable: float | None
) -> None:
    rewards = TrainingScorer(config, unscorable=unscorable)
    with caplog.at_level(logging.WARNING, "vcs_runtime.training"):
        for _ in range(3):
            found = rewards.reward_fn(["p", "q", "r"], ["", TEXT, TEXT], reference=[TEXT, TEXT, ""])
            # An empty reference is not the model's fault.
            assert (found[0], found[2]) == (unscorable, None)
    assert caplog.text.count("could not be scored") == 1


def test_a_group_of_equal_rewards_is_reported_once(
    config: ScorerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    rewards = TrainingScorer(config)
    with caplog.at_level(logging.WARNING, "vcs_runtime.training"):
        rewards.reward_fn(["p", "p", "q"], [TEXT, OTHER, TEXT], reference=[TEXT] * 3)
        # Equal, but of two prompts.
        rewards.reward_fn(["p", "q"], [TEXT, TEXT], reference=[TEXT] * 2)
        assert caplog.text == ""
        for _ in range(2):
            rewards.reward_fn(["p", "q", "q"], [OTHER, TEXT, TEXT], reference=[TEXT] * 3)
    assert caplog.text.count("all 2 completions of a prompt have reward") == 1


@pytest.mark.parametrize("reference", [None, "", [], [TEXT, None], 3.5])
def test_so_is_one_whose_reference_cannot(rewards: TrainingScorer, reference: Any) -> None:
    assert rewards.reward_fn(["p", "p"], [TEXT, TEXT], reference=[reference, TEXT])[0] is None


def test_residue_of_models_is_named_once_and_cleaned_if_asked(
    config: ScorerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    residue = [f"<think>A dog?</think>{OTHER}", f"{OTHER}<|im_end|>", f"Sure! Here it is:\n{OTHER}"]
    arguments = (["p"] * 3, residue)
    raw = TrainingScorer(config)
    plain = raw.score_many([(TEXT, OTHER)])[0].margin
    assert plain not in raw.reward_fn(*arguments, reference=[TEXT] * 3)
    raw.reward_fn(*arguments, reference=[TEXT] * 3)
    notices = [each.message for each in caplog.records if "scored as words" in each.message]
    assert notices == [
        "markup is scored as words: 1 of 3 with reasoning ('<think>'), 1 of 3 with special tokens"
        " ('<|im_end|>'), 1 of 3 with a polite opening or end ('Sure! Here it is:'). To remove it,"
        " pass clean=('think', 'chat') (reported once)"
    ]
    caplog.clear()
    cleaned = TrainingScorer(config, clean=("think", "chat"))
    assert cleaned.reward_fn(*arguments, reference=[TEXT] * 3) == [plain] * 3
    metric = TextMetric(config, clean=["chat", "think"])
    metric.update(residue, [TEXT] * 3)
    assert metric.compute()["margin"] == plain
    assert "|clean:think+chat|" in metric.signature
    options = {"bundle": config.bundle, "device": "cpu", "clean": ["think", "chat"]}  # of YAML
    assert [compute_score("", text, TEXT, **options) for text in residue] == [plain] * 3
    assert not [each for each in caplog.records if "scored as words" in each.message]
    with pytest.raises(ValueError, match="^clean must be one of"):
        TrainingScorer(config, clean=["html"])


def test_a_missing_column_shows_in_the_first_step(rewards: TrainingScorer) -> None:
    with pytest.raises(ValueError, match="no 'reference' \\(it has 'caption'\\)"):
        rewards.reward_fn(["p"], [TEXT], caption=[TEXT])
    with pytest.raises(ValueError, match="reference has 2 rows, but completions has 1"):
        rewards.reward_fn(["p"], [TEXT], reference=[TEXT, TEXT])


def test_column_score_and_options_are_what_was_asked_for(
    config: ScorerConfig, scorer: Scorer
) -> None:
    mine = TrainingScorer(
        config, chunk_size=2, params=Params(lct=1.0), score="las_recall", reference_column="caption"
    )
    expected = scorer.score(TEXT, OTHER, chunk_size=2, params=Params(lct=1.0)).scores
    assert expected is not None
    assert mine.reward_fn(["p"], [OTHER], caption=[TEXT]) == [expected.las_recall]


def test_rewards_that_are_mostly_zero_are_reported_once_with_the_reason(
    config: ScorerConfig, scorer: Scorer, caplog: pytest.LogCaptureFixture
) -> None:
    # Two chunks against three are 0 by definition.
    references, completions = [story(i, 3) for i in range(8)], [story(20 + i, 2) for i in range(8)]
    rewards, logged = TrainingScorer(config, score="vcs"), {}
    with caplog.at_level(logging.WARNING, "vcs_runtime.training"):
        assert rewards.reward_fn(["p"] * 4, completions[:4], reference=references[:4]) == [0.0] * 4
        assert "VCS is 0" not in caplog.text  # four are too few to tell
        for _ in range(3):
            rewards.reward_fn(
                ["p"] * 8, completions, reference=references, log_metric=logged.__setitem__
            )
    assert logged == {"vcs/unscorable": 0.0, "vcs/zeros": 1.0}
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert (
        messages[0]
        == "all 4 completions of a prompt have reward 0, which teaches nothing (reported once)"
    )
    assert (
        messages[1] == "12 of 12 pairs have a VCS of 0 because order cannot be judged. "
        "Order could not be judged in 12 of 12 pairs: 12 with numbers of chunks that are too small"
        ' or too different. Rewards that are all 0 teach nothing: use TrainingScorer(score="margin").'
    )
    caplog.clear()
    dense = TrainingScorer(config).reward_fn(["p"] * 8, completions, reference=references)
    assert len(set(dense)) == 8
    assert dense[0] == scorer.score(references[0], completions[0]).to_dict()["margin"]
    assert caplog.text == ""


def test_verl_gets_a_number_for_every_sample(config: ScorerConfig, scorer: Scorer) -> None:
    options = {"bundle": str(config.bundle), "device": "cpu"}
    expected = scorer.score([TEXT, OTHER], story(5)).margin
    for truth in ([TEXT, OTHER], np.array([TEXT, OTHER], object)):
        rewarded = compute_score(
            data_source="clips",
            solution_str=story(5),
            ground_truth=truth,
            extra_info={"num_turns": 1},
            **options,
        )
        assert rewarded == expected
    assert compute_score("clips", "", TEXT, None, **options) == -1.0  # the lowest margin
    assert compute_score("clips", "", TEXT, None, score="vcs", **options) == 0.0
    weights = {"las": 0.75, "nas": 0.25}
    both = scorer.score(TEXT, story(5))
    assert (
        compute_score("clips", story(5), TEXT, score=weights, **options)
        == 0.75 * both.las + 0.25 * both.nas
    )
    assert compute_score("clips", "", TEXT, score=weights, **options) == -0.75  # LAS -1, NAS 0
    assert compute_score("clips", "", TEXT, None, unscorable=-1, **options) == -1.0


def test_verls_arguments_for_reward_models_are_passed_over(config: ScorerConfig) -> None:
    both = {"reward_router_address": "127.0.0.1:1", "reward_model_tokenizer": object()}
    assert (
        compute_score("clips", TEXT, TEXT, {}, bundle=str(config.bundle), device="cpu", **both)
        > 0.99
    )


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"score": "bleu"}, "score must be one of 'vcs'"),
        (
            {"score": {"spice": 1.0}},
            "score must be one of .* 'nas_l_recall', 'coarse'.* 'vcs_strict'",
        ),
        *(({"score": name}, f"a smaller {name} is better") for name in sorted(SMALLER_IS_BETTER)),
        (
            {"score": {"vcs": 1.0, "substitution": 0.5}},
            "give it a weight below 0, or use 'margin_strict'",
        ),
        ({"score": {}}, "one weight"),
        ({"score": {"las": "much"}}, "weight of las"),
        ({"score": {"las": float("nan")}}, "weight of las"),
        ({"deadline_s": 0}, "deadline_s must be a number of seconds above 0, not 0"),
        ({"chunk_size": 0}, "chunk_size must be"),
        ({"config": ScorerConfig(device="gpu")}, "device must be"),
        ({"config": ScorerConfig(device="cpu", gpu_memory_gb=-1)}, "gpu_memory_gb must be"),
    ],
)
def test_wrong_arguments_are_named_before_the_training(
    config: ScorerConfig, wrong: Any, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        TrainingScorer(**{"config": config, **wrong})


def test_so_are_a_bundle_and_a_device_that_are_not_there(
    config: ScorerConfig, tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match="no such folder"):
        TrainingScorer(tmp_path / "gone")
    for device in ("cuda:0", "cuda:all"):
        with pytest.raises(DeviceError, match="CUDAExecutionProvider"):
            TrainingScorer(replace(config, device=device))


def test_the_functions_of_the_module_use_the_default_bundle() -> None:
    text = "A man opens a door. A dog runs into the garden."
    assert training.reward_fn(["p", "p"], [text, ""], reference=[text, text])[1] == -1.0
    assert training.compute_score("clips", text, text) > 0.99
    assert training.submit(text, text).result().vcs > 0.99
    training.release()
