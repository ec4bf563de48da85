"""The recipe of docs/guide/integrations.md in lmms-eval itself, where it is installed."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from support.processes import run_python
from support.snippets import ROOT
from support.stories import story
from vcs_runtime import Scorer

pytest.importorskip("lmms_eval", reason="lmms-eval is not installed: its dependencies are many")

ANSWER = "A man opens a door and a dog runs. The man throws a ball."
TASK = """\
task: vcs_captions
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_visual: !function vcs_utils.no_visual
doc_to_text: question
doc_to_target: caption
"""


def _block(language: str, title: str) -> str:
    page = (ROOT / "docs/guide/integrations.md").read_text("utf-8")
    [code] = re.findall(rf'^```{language} title="{title}"\n(.*?)^```$', page, re.M | re.S)
    return str(code)


def test_a_task_with_the_recipe_reports_means_and_what_cannot_be_scored(
    tiny_bundle: Path, scorer: Scorer, tmp_path: Path
) -> None:
    captions = [story(i) for i in range(4)] + [""]
    data = tmp_path / "docs.jsonl"
    data.write_text(
        "".join(json.dumps({"question": "Describe.", "caption": text}) + "\n" for text in captions)
    )
    task = tmp_path / "task"
    task.mkdir()
    recipe = f"bundle = {str(tiny_bundle)!r}\n{_block('python', 'lmms-eval')}"
    (task / "vcs_utils.py").write_text(f"{recipe}\n\ndef no_visual(doc):\n    return []\n")
    (task / "vcs_captions.yaml").write_text(
        TASK.format(data=data) + _block("yaml", "lmms-eval task")
    )
    done = run_python(
        *"-m lmms_eval --model dummy --model_args".split(),
        f"response={ANSWER}",
        *f"--tasks vcs_captions --include_path {task} --output_path {tmp_path}/out".split(),
        env=os.environ | {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    [report] = (tmp_path / "out").rglob("*_results.json")
    found = json.loads(report.read_text("utf-8"))["results"]["vcs_captions"]
    results = [scorer.score(text, ANSWER) for text in captions[:4]]
    assert found["vcs_unscorable,none"] == pytest.approx(1 / 5)
    assert found["vcs_margin,none"] == pytest.approx(sum(result.margin for result in results) / 4)
    assert found["vcs,none"] == pytest.approx(sum(result.vcs for result in results) / 4)
