"""Processes: spawned, forked, ended in the middle; none of the training stack, and no sockets."""

from __future__ import annotations

import multiprocessing
import pickle
import textwrap
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from support.processes import run_python
from support.stories import story
from support.waiting import HANGS_AFTER_S
from vcs_runtime import Scorer, ScorerConfig
from vcs_runtime.training import TrainingScorer

TEXT, OTHER = story(1), story(2)


def run(script: str, *arguments: object) -> list[str]:
    done = run_python("-c", textwrap.dedent(script), *arguments, timeout=HANGS_AFTER_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_spawned_process_opens_its_own_session(config: ScorerConfig, scorer: Scorer) -> None:
    rewards = TrainingScorer(config)
    expected = scorer.score(TEXT, OTHER).margin
    assert rewards.compute_score("clips", OTHER, TEXT) == expected
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        scores = pool.map(rewards.compute_score, ["clips"] * 4, [OTHER] * 4, [TEXT] * 4)
        assert list(scores) == [expected] * 4
    assert len(pickle.dumps(rewards)) < 2000  # paths and options


def test_a_relative_bundle_is_found_from_another_folder(tiny_bundle: Path, tmp_path: Path) -> None:
    script = """
        import os, pickle, sys
        from vcs_runtime import ScorerConfig
        from vcs_runtime.training import TrainingScorer
        os.chdir(sys.argv[1])
        rewards = pickle.dumps(TrainingScorer(ScorerConfig("bundle", "cpu")))
        os.chdir(sys.argv[2])
        print(pickle.loads(rewards).compute_score("clips", "A man sits. A dog runs.", "A man \
sits. A dog runs.") > 0.99)
    """
    assert run(script, tiny_bundle.parent, tmp_path) == ["True"]


def test_a_forked_child_opens_its_own_session_while_its_parents_is_busy(tiny_bundle: Path) -> None:
    script = """
        import os, sys, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads: just what \
is tested
        from vcs_runtime import ScorerConfig
        from vcs_runtime.training import TrainingScorer
        rewards = TrainingScorer(ScorerConfig(sys.argv[1], "cpu", cache=sys.argv[2]))
        text, other = "A man sits. A dog runs. She smiles.", "A dog runs. A man smiles."
        print(rewards.compute_score("clips", other, text), flush=True)
        busy = [rewards.submit(text, other + f" She cuts {i}." * 9, deadline_s=600) for i in \
range(300)]
        for leave in (os._exit, sys.exit):  # as multiprocessing's children do, and through atexit
            if (child := os.fork()) == 0:
                print(rewards.compute_score("clips", other, text), flush=True)
                leave(0)
            assert os.waitpid(child, 0)[1] == 0
        print({future.result().error for future in busy} == {None})
    """
    parent, *children, whole = run(script, tiny_bundle, tiny_bundle.parent / "vectors")
    assert children == [parent, parent]
    assert whole == "True"


def test_a_process_ends_cleanly_with_much_left_to_score(tiny_bundle: Path) -> None:
    script = """
        import sys
        from vcs_runtime.training import submit
        text = "A man sits. A dog runs. "
        left = [submit(text, text * (i + 1), bundle=sys.argv[1], device="cpu") for i in range(2000)]
        left[0].result()
        print("end")
    """
    assert run(script, tiny_bundle) == ["end"]
