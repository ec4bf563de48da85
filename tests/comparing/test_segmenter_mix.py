"""Comparisons name the segmenters of each side, and warn where they differ or are mixed."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from support.command_line import assert_refused, vcs
from support.stories import story, stripped, write_pairs
from vcs_runtime.scoring.score_table import NAMES

SIGNATURE = "vcs|def:1.0.0|seg:sentencex@1+tiny-sat@0195|v:1"
RULES, LEARNED = "sentencex", "tiny-sat"
WARNED = "which may cause a part of the differences. Score all systems with "
ALIKE = "Two segmenters may split a text differently"


def scores(path: Path, names: list[str | None], signature: str = SIGNATURE) -> Path:
    rows: list[dict[str, Any]] = [
        {
            "id": i,
            **dict.fromkeys(NAMES, 0.8),
            "vcs": 0.5 + i / 100,
            "n_ref": 3,
            "n_gen": 3,
            "segmenter": name,
            "signature": signature,
        }
        for i, name in enumerate(names)
    ]
    write_pairs(path, rows)
    return path


def test_compare_names_both_sides_and_warns_where_they_differ(tmp_path: Path) -> None:
    a = scores(tmp_path / "written.jsonl", [RULES] * 3)
    b = scores(tmp_path / "bare.jsonl", [LEARNED, LEARNED, RULES])
    printed = vcs("compare", a, b).stdout
    assert (
        "Pairs split by rules (sentencex) / the learned segmenter (tiny-sat): written 3 / 0, bare 1"
        " / 2." in printed
    )
    assert f"2 pairs were split by different segmenters, {WARNED}" in printed.replace("\n", " ")
    for format_ in ("markdown", "latex"):
        done = vcs("compare", a, b, "--format", format_)
        assert "written 3 / 0, bare 1 / 2." in done.stdout
        assert "2 pairs were split by different segmenters" in done.stdout
    found = vcs("compare", a, b, "--format", "json")
    assert "2 pairs were split by different segmenters" in found.stderr
    told = json.loads(found.stdout)
    assert [own["segmenters"] for own in told["systems"]] == [{RULES: 3}, {LEARNED: 2, RULES: 1}]
    assert told["split_differently"] == 2
    assert "2 pairs were split by different" in vcs("compare", a, b, "--format", "csv").stderr


def test_compare_warns_of_a_mix_that_is_the_same_on_both_sides(tmp_path: Path) -> None:
    mixed: list[str | None] = [RULES, LEARNED, RULES]
    done = vcs("compare", scores(tmp_path / "a.jsonl", mixed), scores(tmp_path / "b.jsonl", mixed))
    assert "a 2 / 1, b 2 / 1." in done.stdout
    assert ALIKE in done.stdout
    assert WARNED not in done.stdout
    # Equal numbers, but not of the same pairs.
    done = vcs(
        "compare", tmp_path / "a.jsonl", scores(tmp_path / "b.jsonl", [LEARNED, RULES, RULES])
    )
    assert "2 pairs were split by different segmenters" in done.stdout


def test_compare_says_which_one_segmenter_it_was_and_nothing_of_words(tmp_path: Path) -> None:
    done = vcs(
        "compare",
        scores(tmp_path / "a.jsonl", [RULES] * 2),
        scores(tmp_path / "b.jsonl", [RULES] * 2),
    )
    assert "All texts were split by rules (sentencex).\n" in done.stdout
    one = "vcs|seg:sentencex@1|v:1"  # no learned segmenter to tell it from
    done = vcs("compare", *(scores(tmp_path / f"{name}.jsonl", [RULES], one) for name in "ab"))
    assert "All texts were split by sentencex.\n" in done.stdout
    done = vcs(
        "compare",
        *(scores(tmp_path / f"{name}.jsonl", [None], "vcs|seg:none|v:1") for name in "ab"),
    )
    assert "split" not in done.stdout


def test_files_that_two_decisions_have_split_are_refused_with_the_remedy(tmp_path: Path) -> None:
    a = scores(tmp_path / "a.jsonl", [RULES], "vcs|seg:sentencex@1|v:1")
    b = scores(tmp_path / "b.jsonl", [LEARNED], "vcs|seg:tiny-sat@1|cut:0.5|v:1")
    done = vcs("compare", a, b)
    assert_refused(done, "score both again with the same version, bundle and options")
    done = vcs("compare", a, b, "--ignore-signatures")
    assert "Pairs split by sentencex / tiny-sat: a 1 / 0, b 0 / 1." in done.stdout


def sentences_of(report: Path) -> list[str]:
    """The sentences at the top of an HTML report, unpacked as its script does it."""
    [packed] = re.findall('id="index">([^<]*)<', report.read_text("utf-8"))
    found: list[str] = json.loads(zlib.decompress(base64.b64decode(packed)))["sentences"]
    return found


def test_a_report_names_them_and_warns(tmp_path: Path) -> None:
    a = scores(tmp_path / "written.jsonl", [RULES] * 3)
    b = scores(tmp_path / "bare.jsonl", [LEARNED, LEARNED, RULES])
    report = tmp_path / "r.html"
    assert vcs("report", a, b, "-o", report).code == 0
    mix, warning = sentences_of(report)[-2:]
    assert mix.endswith(
        "rules (sentencex) / the learned segmenter (tiny-sat): written 3 / 0, bare 1 / 2."
    )
    assert warning.startswith("2 pairs were split by different segmenters")
    assert vcs("report", b, "-o", report, "--overwrite").code == 0
    mix, warning = sentences_of(report)[-2:]
    assert mix.endswith("2 by the learned segmenter (tiny-sat), 1 by rules (sentencex).")
    assert warning.startswith(ALIKE)
    assert vcs("report", a, "-o", report, "--overwrite").code == 0
    assert sentences_of(report)[-1] == "All texts were split by rules (sentencex)."


def test_rank_names_the_segmenters_of_each_model(whole_bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("rouge_score")
    (tmp_path / "models").mkdir()
    ids = "abcd"
    references = {name: story(i) for i, name in enumerate(ids)}
    written = {name: story(i + 9) for i, name in enumerate(ids)}
    bare = written | {name: stripped(i + 20, 5) for i, name in enumerate("ab")}
    for path, texts in (("refs", references), ("models/written", written), ("models/bare", bare)):
        (tmp_path / f"{path}.json").write_text(json.dumps(texts))
    job = (
        *f"experiment rank --references {tmp_path}/refs.json".split(),
        *f"--predictions {tmp_path}/models --workers 1 --bundle {whole_bundle}".split(),
        "--device",
        "cpu",
    )
    vcs(*job, "-o", tmp_path / "auto", "--baseline", "bare")
    notes = json.loads((tmp_path / "auto" / "results.json").read_text())["notes"]
    mix = (
        "Pairs split by rules (sentencex) / the learned segmenter (tiny-sat): bare 2 / 2, written 4"
        " / 0."
    )
    assert mix in notes
    assert any(note.startswith("2 pairs were split by different segmenters") for note in notes)
    assert mix in (tmp_path / "auto" / "comparison.tex").read_text()
    vcs(*job, "-o", tmp_path / "one", "--segmenter", "learned")
    results = json.loads((tmp_path / "one" / "results.json").read_text())
    assert results["signature_long"].startswith(results["signature"] + "|ort:")
    assert "All texts were split by tiny-sat." in results["notes"]
    assert "|seg:tiny-sat@" in results["signature"]
