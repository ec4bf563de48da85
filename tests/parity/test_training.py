"""The examples of docs/guide/training.md in the real trainers, with tiny models and two ranks."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed

from support.checkpoints.bert import tiny_tokenizer
from support.snippets import run_snippet
from support.stories import story
from support.waiting import HANGS_AFTER_S
from vcs_runtime import Scorer, ScorerConfig, training
from vcs_runtime.training import TextMetric

PAGE = "docs/guide/training.md"
PREDS = [story(i) for i in range(20, 31)]
TARGETS = [story(i) for i in range(11)]
# What the libraries' own code warns of is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def expected(tiny_bundle: Path) -> dict[str, float]:
    metric = TextMetric(ScorerConfig(tiny_bundle, "cpu"))
    metric.update(PREDS, TARGETS)
    return metric.compute()


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    plain = tiny_tokenizer()
    plain.no_truncation()
    plain.no_padding()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain,
        pad_token="[PAD]",
        eos_token="[SEP]",
        bos_token="[CLS]",
        unk_token="[UNK]",
    )


@pytest.fixture(autouse=True)
def nothing_left() -> Any:
    yield
    training.close()


Ranks = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def on_two_ranks() -> Iterator[Ranks]:
    """Calls a function as `f(rank, *arguments)` in each of two processes of one gloo group."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    spawn = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        pools = [
            stack.enter_context(
                ProcessPoolExecutor(
                    1, spawn, distributed.init_process_group, ("gloo", address, None, 2, rank)
                )
            )
            for rank in range(2)
        ]

        def call(work: Callable[..., Any], *arguments: Any) -> list[Any]:
            running = [pool.submit(work, rank, *arguments) for rank, pool in enumerate(pools)]
            return [rank.result(HANGS_AFTER_S) for rank in running]

        yield call


def _torchmetrics(rank: int, bundle: str, shares: list[slice]) -> dict[str, float]:
    metric = run_snippet(PAGE, "torchmetrics", config=ScorerConfig(bundle, "cpu"))["metric"]
    share = shares[rank]
    if PREDS[share]:
        metric.update(PREDS[share], TARGETS[share])
    found = {name: float(value) for name, value in metric.compute().items()}
    metric.reset()
    assert int(metric.counts.sum()) == 0
    return found


@pytest.mark.parametrize("shares", [[slice(0, 6), slice(6, 11)], [slice(0, 11), slice(0, 0)]])
def test_torchmetrics_adds_up_over_two_ranks_though_one_may_have_nothing(
    on_two_ranks: Ranks, tiny_bundle: Path, expected: dict[str, float], shares: list[slice]
) -> None:
    first, second = on_two_ranks(_torchmetrics, str(tiny_bundle), shares)
    assert first == second
    assert first == pytest.approx(expected, rel=1e-14)


def _merged(rank: int, bundle: str) -> dict[str, float]:
    metric = TextMetric(ScorerConfig(bundle, "cpu"))
    metric.update(PREDS[rank::2], TARGETS[rank::2])
    states: list[Any] = [None, None]
    distributed.all_gather_object(states, metric.state())
    return TextMetric(ScorerConfig(bundle, "cpu")).merge_state(states).compute()


def test_states_that_two_ranks_exchange_give_the_mean_of_one_to_the_last_bit(
    on_two_ranks: Ranks, tiny_bundle: Path, expected: dict[str, float]
) -> None:
    assert on_two_ranks(_merged, str(tiny_bundle)) == [expected, expected]


def _compute_metrics(rank: int, bundle: str) -> dict[str, float]:
    names = run_snippet(PAGE, "transformers")
    fake = SimpleNamespace(
        pad_token_id=0, batch_decode=lambda ids, **_: [PREDS[i] for i in ids[:, 0]]
    )
    ids = np.arange(11)[:, None]
    prediction = SimpleNamespace(predictions=ids, label_ids=ids)
    return dict(names["make_compute_metrics"](fake, ScorerConfig(bundle, "cpu"))(prediction))


def test_compute_metrics_is_called_on_both_ranks_and_scores_every_pair_once(
    on_two_ranks: Ranks, tiny_bundle: Path
) -> None:
    alone = TextMetric(ScorerConfig(tiny_bundle, "cpu"))
    alone.update(PREDS, PREDS)
    assert on_two_ranks(_compute_metrics, str(tiny_bundle)) == [alone.compute()] * 2


def test_a_transformers_trainer_evaluates(
    tiny_bundle: Path, tokenizer: Any, tmp_path: Path
) -> None:
    from transformers import (
        BartConfig,
        BartForConditionalGeneration,
        DataCollatorForSeq2Seq,
        Seq2SeqTrainer,
        Seq2SeqTrainingArguments,
    )

    torch.manual_seed(0)
    special = {
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 3,
    }
    model = BartForConditionalGeneration(
        BartConfig(
            vocab_size=len(tokenizer),
            d_model=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=16,
            decoder_ffn_dim=16,
            max_position_embeddings=128,
            **special,
        )
    )
    rows = [
        {"input_ids": tokenizer(story(i)).input_ids, "labels": tokenizer(story(i, 3)).input_ids}
        for i in range(5)
    ]
    make = run_snippet(PAGE, "transformers")["make_compute_metrics"]
    seen: list[tuple[Any, dict[str, float]]] = []

    def spied(prediction: Any) -> dict[str, float]:
        seen.append((prediction, make(tokenizer, ScorerConfig(tiny_bundle, "cpu"))(prediction)))
        return dict(seen[-1][1])

    arguments = Seq2SeqTrainingArguments(
        str(tmp_path),
        predict_with_generate=True,
        generation_max_length=24,
        per_device_eval_batch_size=2,
        max_steps=1,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    trainer = Seq2SeqTrainer(
        model,
        arguments,
        DataCollatorForSeq2Seq(tokenizer, model),
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=tokenizer,
        compute_metrics=spied,
    )
    trainer.train()
    assert len(seen) == 1
    found = trainer.evaluate()
    prediction, scores = seen[-1]
    assert found["eval_count"] + found["eval_unscorable"] == 5
    assert prediction.label_ids.min() == -100  # padded, and yet:
    decoded = [
        tokenizer.decode(row[row >= 0], skip_special_tokens=True) for row in prediction.label_ids
    ]
    generated = [
        tokenizer.decode(row[row >= 0], skip_special_tokens=True) for row in prediction.predictions
    ]
    with Scorer.open(tiny_bundle, "cpu") as scorer:
        results = scorer.score_many(list(zip(decoded, generated, strict=True)))
    values = [result.vcs for result in results if not result.error]
    assert scores["count"] == len(values)
    if values:
        assert math.isclose(found["eval_vcs"], math.fsum(values) / len(values), rel_tol=1e-12)


def test_a_grpo_trainer_is_rewarded_and_pays_the_lowest_for_what_cannot_be_scored(
    tiny_bundle: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl import GRPOConfig

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=128,
            pad_token_id=0,
            bos_token_id=2,
            eos_token_id=3,
        )
    )
    given: list[list[float | None]] = []
    really = training.TrainingScorer.reward_fn

    def spied(self: Any, prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        # One row of each step cannot be scored; the others can, whatever the model writes.
        texts = ["", *(f"A man walks. {text} dog." for text in completions[1:])]
        given.append(really(self, prompts, texts, **columns))
        return given[-1]

    monkeypatch.setattr(training.TrainingScorer, "reward_fn", spied)
    arguments = GRPOConfig(
        str(tmp_path),
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=24,
        max_steps=2,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
    )
    dataset = Dataset.from_list([{"prompt": story(i, 1), "reference": story(i)} for i in range(4)])
    names = run_snippet(
        PAGE,
        "trl",
        bundle=tiny_bundle,
        dataset=dataset,
        model=model,
        args=arguments,
        tokenizer=tokenizer,
    )
    assert len(given) == 2
    for rewards in given:
        assert None not in rewards
        assert rewards[0] == -1.0  # the lowest margin: silence must not pay
    logged = [entry for entry in names["trainer"].state.log_history if "vcs/unscorable" in entry]
    assert [float(entry["vcs/unscorable"]) for entry in logged] == [0.25, 0.25]


def test_a_lightning_trainer_evaluates(
    tiny_bundle: Path, expected: dict[str, float], tmp_path: Path
) -> None:
    import lightning
    from torch.utils.data import DataLoader

    metric = run_snippet(PAGE, "torchmetrics", config=ScorerConfig(tiny_bundle, "cpu"))["metric"]
    module = run_snippet(PAGE, "lightning")["Describer"](
        SimpleNamespace(describe=lambda inputs: [PREDS[i] for i in inputs]), metric
    )
    rows = [{"inputs": i, "reference": TARGETS[i]} for i in range(11)]
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=tmp_path,
    )
    [found] = trainer.validate(module, DataLoader(rows, batch_size=4), verbose=False)
    assert found == {
        f"val/{name}": pytest.approx(value, rel=1e-6) for name, value in expected.items()
    }
