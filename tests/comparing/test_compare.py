"""`vcs-runtime compare`: score files of several systems."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from click.testing import CliRunner

from support.comparisons import lines, run
from support.processes import run_python
from support.stories import write_pairs
from vcs_runtime.cli import cli
from vcs_runtime.comparing.systems import FAMILIES
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.bootstrap import mean_interval
from vcs_runtime.report.systems import figures_of
from vcs_runtime.scoring.score_table import NAMES, SUBSTITUTION


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    draw = np.random.default_rng(1)
    a = draw.uniform(0.2, 0.8, 40)
    b = a + 0.1
    b[7] -= 0.5
    write_pairs(tmp_path / "a.jsonl", lines(a.tolist()))
    write_pairs(tmp_path / "b.jsonl", lines(b.tolist())[::-1])  # the order does not matter
    return tmp_path / "a.jsonl", tmp_path / "b.jsonl"


def test_difference_interval_tests_and_what_moved(pair: tuple[Path, Path]) -> None:
    done = run(*pair, "--format", "json", "--moved", 3)
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["pairs"] == 40
    assert found["difference"] == pytest.approx(0.1 - 0.5 / 40)
    low, high = found["ci95"]
    assert low < found["difference"] < high
    assert found["p_bootstrap"] < 0.01
    assert found["p_permutation"] < 0.01
    assert found["moved"][0]["id"] == "7"
    assert len(found["moved"]) == 3
    assert run(*pair, "--format", "json", "--moved", 3).stdout == done.stdout
    half = json.loads(run(*pair, "--format", "json", "--score", "las").stdout)
    assert half["difference"] == pytest.approx(found["difference"] / 2)


def test_the_table_for_people(pair: tuple[Path, Path]) -> None:
    done = run(*pair, "--moved", 1)
    assert done.exit_code == 0
    head, b, a, *rest = done.stdout.splitlines()  # the better one first
    assert head.split() == ["system", "zeros", "VCS", "difference", "p"]
    assert re.fullmatch(r"a +0 +0\.\d{3} ±0\.\d{3}  baseline *", a)
    assert re.fullmatch(r"b +0 +0\.\d{3} ±0\.\d{3}  \+0\.087\*\* ±0\.\d{3} +0\.0\d* *", b)
    assert "VCS of 2 systems, over the 40 pairs that all systems scored." in rest
    [moved] = [line for line in rest if line.startswith("7 ")]
    assert moved.split()[-1] == "-0.4000"
    assert rest[-1] == "vcs|one"


def zeros(margins: list[float]) -> list[dict[str, Any]]:
    return [
        line | {"margin": margin}
        for line, margin in zip(
            lines([max(0.0, margin) for margin in margins]), margins, strict=True
        )
    ]


def test_where_vcs_is_mostly_zero_the_margin_is_compared_and_said(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a.jsonl", zeros([-0.3, -0.2, -0.1, 0.1]))
    write_pairs(tmp_path / "b.jsonl", zeros([-0.2, -0.1, 0.0, 0.2]))
    done = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert done.exit_code == 0
    assert "6 of 8 pairs have a VCS of 0. This is more than half, so report margin" in done.stdout
    head, b, a = (line.split() for line in done.stdout.splitlines()[:3])
    assert (head[2], a[1:3], b[1:3]) == ("margin", ["3", "-0.125"], ["3", "-0.025"])
    named = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--score", "vcs", "--format", "json")
    found = json.loads(named.stdout)
    assert (found["score"], found["reason"]) == ("vcs", "")
    write_pairs(tmp_path / "b.jsonl", zeros([0.2, 0.1, 0.1, 0.2]))
    half = json.loads(run(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--format", "json").stdout)
    assert (half["score"], half["reason"]) == ("vcs", "")  # 3 of 8


def test_other_signatures_are_refused_unless_forced(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    write_pairs(tmp_path / "b.jsonl", lines([0.5] * 40, "vcs|two"))
    refused = run(*pair)
    assert isinstance(refused.exception, InputError)
    assert "b.jsonl were scored differently: one and two; score both again" in str(
        refused.exception
    )
    forced = run(*pair, "--ignore-signatures")
    assert forced.exit_code == 0
    assert forced.stdout.endswith("a: vcs|one\nb: vcs|two\n")


def test_metrics_that_one_file_has_beside_vcs_do_not_keep_others_from_being_compared(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    replaced = dict.fromkeys(SUBSTITUTION, 0.5)
    write_pairs(
        tmp_path / "a.jsonl", lines([0.5] * 40, "vcs|also:substitution|words:x|v:1", **replaced)
    )
    write_pairs(tmp_path / "b.jsonl", lines([0.6] * 40, "vcs|v:1"))
    assert run(*pair).exit_code == 0
    write_pairs(
        tmp_path / "b.jsonl", lines([0.6] * 40, "vcs|also:substitution|words:y|v:1", **replaced)
    )
    assert run(tmp_path, "--score", "las").exit_code == 0  # the folder that `score` wrote
    refused = run(*pair, "--score", "vcs_strict")
    assert "b.jsonl were scored differently: words:x and words:y; score both" in str(
        refused.exception
    )


def test_a_file_that_holds_no_scores_is_called_so(pair: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "refs.json").write_text('{\n"a": "A man walks."}')
    refused = run(tmp_path / "refs.json", pair[1])
    assert (
        str(refused.exception)
        == f"{tmp_path / 'refs.json'}: not a score file (an output of `vcs-runtime score -o`)"
    )


def test_ids_of_one_file_alone_are_named_and_the_rest_is_compared(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    rows = lines([0.5] * 30)
    rows[3] = {"id": 3, "error": "generated: the text is empty", "signature": "vcs|one"}
    write_pairs(tmp_path / "b.jsonl", rows)
    done = run(*pair, "--format", "json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["pairs"] == 29
    assert sorted(map(int, found["left_out"])) == [3, *range(30, 40)]
    assert "vcs-runtime: 3 is left out, because it has no score from b\n" in done.stderr
    assert [system["failed"] for system in found["systems"]] == [0, 1]
    assert [system["missing"] for system in found["systems"]] == [0, 10]
    head, b, a = (line.split() for line in run(*pair).stdout.splitlines()[:3])
    assert head[1:4] == ["failed", "missing", "zeros"]
    assert a[1:4] == ["0", "0", "0"]
    assert b[1:4] == ["1", "10", "0"]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "the file holds no scores"),
        ([{"id": 1, "vcs": 0.5}], "line 1: not a line of a score file"),
        ([{"id": 1, "vcs": 0.5, "signature": "s"}] * 2, "line 2: id 1 occurs twice"),
        ([{"id": 1, "vcs": float("nan"), "signature": "s"}], "'vcs' must be a number, not nan"),
        ([{"id": 1, "signature": "s"}], "line 1: 'vcs' must be a number, not None"),
        ([{"id": 1, "vcs": 1.001, "signature": "s"}], r"line 1: 'vcs' must be from 0 to 1"),
        ([{"id": 1, "vcs": 10**400, "signature": "s"}], r"line 1: 'vcs' must be from 0 to 1"),
        (
            [{"id": 1, "vcs": 0.5, "replaced_things": -1e300, "signature": "s"}],
            "line 1: 'replaced_things' must",
        ),
        (
            [{"id": 1, "vcs": 0.5, "margin": "0.5-7", "signature": "s"}],
            "line 1: 'margin' must be a number, not '0.5-7'",
        ),
        (
            [{"id": 1, "vcs": 0.5, "margin": None, "signature": "s"}],
            "line 1: 'margin' must be a number, not None",
        ),
        (
            [{"id": 1, "vcs": 1, "signature": "s"}, {"id": 2, "vcs": 1, "signature": "t"}],
            "line 2: scored as t, but the lines before as s",
        ),
        ([{"id": 99, "vcs": 0.5, "signature": "vcs|one"}], "no id has a score in all"),
    ],
)
def test_bad_files_are_named(
    pair: tuple[Path, Path], tmp_path: Path, rows: list[Any], says: str
) -> None:
    write_pairs(tmp_path / "b.jsonl", rows)
    refused = run(*pair)
    assert isinstance(refused.exception, InputError)
    assert "b.jsonl" in str(refused.exception)
    assert says in str(refused.exception)


def test_an_unknown_score_is_wrong_usage(pair: tuple[Path, Path]) -> None:
    done = run(*pair, "--score", "bleu")
    assert done.exit_code == 2
    assert "'--score': 'bleu' is not one of 'vcs'" in done.stderr


def test_one_pair_has_no_interval(tmp_path: Path) -> None:
    for name in "ab":
        write_pairs(tmp_path / name, lines([0.5 if name == "a" else 0.75]))
    found = json.loads(run(tmp_path / "a", tmp_path / "b", "--format", "json").stdout)
    assert found["difference"] == 0.25
    assert found["ci95"] == [None, None]
    assert found["p_permutation"] is None


def test_neither_a_model_nor_an_extra_is_needed(pair: tuple[Path, Path]) -> None:
    script = (
        "import sys\nfor name in ('onnxruntime', 'nltk', 'rouge_score', 'matplotlib', 'scipy',"
        " 'sentencex'): sys.modules[name] = None\nfrom vcs_runtime.cli import main\nmain()"
    )
    done = run_python("-c", script, "compare", *pair)
    assert (done.returncode, done.stderr) == (0, "")
    assert "+0.087" in done.stdout


def values_of(path: Path) -> Any:
    return np.array([json.loads(line)["vcs"] for line in path.read_text().splitlines()])


def holm_by_hand(p: list[float]) -> list[float]:
    ranked, found, last = sorted(range(len(p)), key=p.__getitem__), [0.0] * len(p), 0.0
    for step, i in enumerate(ranked):
        found[i] = last = max(last, min(1.0, p[i] * (len(p) - step)))
    return found


def test_each_system_is_tested_against_the_baseline_and_corrected(five: list[Path]) -> None:
    found = json.loads(run(*five, "--format", "json").stdout)
    assert (found["baseline"], found["pairs"], found["tests"]) == ("one", 30, 4)
    base = values_of(five[0])
    for test, path in zip(found["comparisons"], five[1:], strict=True):
        assert (test["system"], test["baseline"], test["score"]) == (path.stem, "one", "vcs")
        difference = values_of(path) - base
        assert test["difference"] == pytest.approx(difference.mean())
        theirs = scipy.stats.permutation_test(
            (difference,),
            np.mean,
            permutation_type="samples",
            n_resamples=2000,
            rng=np.random.default_rng(found["seed"]),
        )
        assert test["p_permutation"] == pytest.approx(theirs.pvalue)
    for kind in ("p_bootstrap", "p_permutation"):
        corrected = [test[f"{kind}_corrected"] for test in found["comparisons"]]
        assert corrected == pytest.approx(
            holm_by_hand([test[kind] for test in found["comparisons"]])
        )
    assert [test["p_permutation_corrected"] < 0.05 for test in found["comparisons"]] == [
        True,
        True,
        False,
        False,
    ]
    plain = json.loads(run(*five, "--format", "json", "--correction", "none").stdout)
    assert all(
        test["p_bootstrap_corrected"] == test["p_bootstrap"] for test in plain["comparisons"]
    )
    text = run(*five).stdout
    assert "corrected by Holm's method over 4 tests" in text
    assert "not corrected, of 4 tests" in run(*five, "--correction", "none").stdout
    assert [line.count("*") for line in text.splitlines()[1:6]] == [2, 0, 0, 0, 2]


def test_a_mark_needs_both_tests_after_correction(five: list[Path]) -> None:
    # Of 100 resamples the smallest p-values are 1 / 101 and 2 / 101.
    row = run(five[0], five[2], "--resamples", 100).stdout.splitlines()[2]
    assert (row.count("*"), row.split()[-1]) == (1, "0.0198")
    row = run(*five, "--resamples", 100).stdout.splitlines()[5]
    assert (row.count("*"), row.split()[-1]) == (0, "0.0792")


def test_the_interval_of_a_mean_is_that_of_score(five: list[Path]) -> None:
    [own, *_] = json.loads(run(*five, "--format", "json").stdout)["systems"]
    assert own["scores"]["vcs"]["ci95"] == mean_interval(values_of(five[0])).tolist()


def test_all_pairs_are_one_family_of_tests(five: list[Path]) -> None:
    found = json.loads(run(*five, "--format", "json", "--all-pairs", "--baseline", "three").stdout)
    assert found["tests"] == len(found["comparisons"]) == 10
    assert [test["baseline"] for test in found["comparisons"]][:4] == ["three"] * 4
    corrected = [test["p_bootstrap_corrected"] for test in found["comparisons"]]
    assert corrected == pytest.approx(
        holm_by_hand([test["p_bootstrap"] for test in found["comparisons"]])
    )
    [row] = [
        test
        for test in found["comparisons"]
        if (test["system"], test["baseline"]) == ("five", "four")
    ]
    assert row["difference"] == pytest.approx((values_of(five[4]) - values_of(five[3])).mean())
    text = run(*five, "--all-pairs").stdout
    # Itself, and four tests.
    assert sum(line.startswith("five ") for line in text.splitlines()) == 5
    rows = list(csv.DictReader(io.StringIO(run(*five, "--all-pairs", "--format", "csv").stdout)))
    assert len(rows) == 10


def test_the_order_of_files_does_not_matter_with_a_named_baseline(five: list[Path]) -> None:
    def by_system(files: list[Path]) -> list[Any]:
        done = run(*files, "--format", "csv", "--baseline", "four")
        return sorted(csv.reader(io.StringIO(done.stdout)))

    for path in (five[0], five[3]):  # nor does the order within a file
        write_pairs(path, lines(values_of(path).tolist())[::-1])
    assert by_system(five) == by_system(five[::-1]) == by_system(five[2:] + five[:2])
    assert (
        run(*five, "--baseline", five[3], "--format", "json").stdout
        == run(*five, "--baseline", "four", "--format", "json").stdout
    )


def test_several_scores_are_columns_each_with_a_family_of_its_own(five: list[Path]) -> None:
    done = run(*five, "--score", "vcs", "--score", "las", "--format", "json")
    found = json.loads(done.stdout)
    assert (found["scores"], found["tests"]) == (["vcs", "las"], 4)
    halves = [test["difference"] / 2 for test in found["comparisons"][:4]]
    assert [test["difference"] for test in found["comparisons"][4:]] == pytest.approx(halves)
    head, *rows = csv.reader(
        io.StringIO(run(*five, "--score", "vcs", "--score", "las", "--format", "csv").stdout)
    )
    assert [head.index(name) for name in ("vcs", "las", "las p permutation")] == [4, 12, 19]
    assert [float(row[12]) for row in rows] == pytest.approx([float(row[4]) / 2 for row in rows])
    assert [row[-1] for row in rows] == ["holm"] * 5
    # The baseline has no tests.
    assert [row[7:12] == [""] * 5 for row in rows] == [True] + [False] * 4
    markdown = run(*five, "--score", "vcs", "--score", "las", "--format", "markdown").stdout
    assert "| VCS mean |" in markdown.splitlines()[0]
    assert markdown.splitlines()[0].endswith("| LAS p |")
    both, alone = (
        run(*five, *more, "--format", "json") for more in (["--score", "vcs", "--score", "las"], [])
    )
    assert json.loads(both.stdout)["comparisons"][:4] == json.loads(alone.stdout)["comparisons"]
    heads = [
        line.split()[2]
        for line in run(*five, "--score", "vcs", "--score", "las").stdout.splitlines()
        if line.startswith("system ")
    ]
    assert heads == ["VCS", "LAS"]  # for people one below the other


def test_a_family_of_all_scores_has_the_stars_that_the_report_has(
    five: list[Path], tmp_path: Path
) -> None:
    for number, path in enumerate(five):
        draw = np.random.default_rng(40 + number)
        rows = [
            {
                "id": i,
                "signature": "vcs|one",
                "n_ref": 3,
                "n_gen": 3,
                **{name: min(0.9, 0.5 + draw.normal(0, 0.1) + number * 0.014) for name in NAMES},
            }
            for i in range(40)
        ]
        write_pairs(path, rows)
    scores = figures_of()
    chosen = [part for score in scores for part in ("--score", score)]
    stars = {}
    for family in FAMILIES:
        done = run(*five, *chosen, "--family", family, "--format", "json")
        tests = json.loads(done.stdout)["comparisons"]
        for kind in ("p_bootstrap", "p_permutation"):
            size = 4 if family == "score" else len(tests)
            raw = [test[kind] for test in tests]
            expected = [
                p for k in range(0, len(raw), size) for p in holm_by_hand(raw[k : k + size])
            ]
            assert [test[f"{kind}_corrected"] for test in tests] == pytest.approx(expected)
        done = CliRunner().invoke(
            cli,
            [
                "report",
                *map(str, five),
                *f"--family {family} -o {tmp_path}/r.html --overwrite".split(),
            ],
        )
        assert done.exit_code == 0, done.output
        [packed] = re.findall('id="index">([^<]*)<', (tmp_path / "r.html").read_text())
        reported = json.loads(zlib.decompress(base64.b64decode(packed)))["comparisons"]
        assert [test for own in reported for test in own["comparisons"]] == tests
        assert {(own["family"], own["tests"]) for own in reported} == {
            (family, 4 if family == "score" else len(tests))
        }
        stars[family] = run(*five, *chosen, "--family", family).stdout.count("*")
        [row, *_] = csv.DictReader(
            io.StringIO(run(*five, *chosen, "--family", family, "--format", "csv").stdout)
        )
        assert row["correction"] == ("holm" if family == "score" else "holm (all scores)")
    assert stars["score"] > stars["all"] > 0
    assert "over 24 tests of all scores" in run(*five, *chosen, "--family", "all").stdout.replace(
        "\n", " "
    )


def test_systems_beside_the_reference_points_are_named(tmp_path: Path) -> None:
    signature = (
        "vcs|def:1.0.0|chunk:1|lct:0|ctx:0.6/4|seg:sentencex@1+boundary-en@4e|cut:0.55/118/fp32"
        "|emb:all-minilm-l6-v2@4e|long:window_mean/256|prec:fp32|engine:ort-cpu|v:1"
    )
    files = []
    for name, margin in (("best", 0.8), ("lower", -0.7), ("lowest", -0.9), ("middle", 0.1)):
        files.append(tmp_path / f"{name}.jsonl")
        write_pairs(files[-1], lines([0.1, 0.2], signature, margin=margin))
    said = (
        "lower and lowest have a mean below another film (margin -0.684). "
        "best has a mean above a language model's retelling (margin 0.588)."
    )
    for format_ in ("text", "latex"):
        printed = run(*files, "--score", "margin", "--format", format_).stdout
        assert said in " ".join(printed.split())
    assert "a mean above" not in run(*files, "--score", "vcs").stdout
    for path in files:
        path.write_text(path.read_text().replace("lct:0", "lct:1"))
    assert "another film" not in run(*files, "--score", "margin").stdout


def test_markdown_escapes_names(five: list[Path]) -> None:
    named = [part for name in ("a|b", "*x*", "[y](z)", "p_q", "<i>") for part in ("--name", name)]
    table, note, signature = run(*five, *named, "--format", "markdown").stdout.strip().split("\n\n")
    head, rule, *rows = table.splitlines()
    assert (head.count("|"), rule.count("|")) == (6, 6)
    assert {row.split(" | ")[0] for row in rows} == {
        r"| a\|b",
        r"| \*x\*",
        r"| \[y\](z)",
        "| p_q",
        r"| \<i\>",
    }
    assert "Holm" in note
    assert signature == "`vcs|one`"


def test_names_and_ids_that_look_like_markup_are_printed_as_they_are(tmp_path: Path) -> None:
    files = [tmp_path / "x.jsonl", tmp_path / "y.jsonl"]
    for path, value in zip(files, (0.25, 0.5), strict=True):
        write_pairs(path, [{"id": "[/x] :dog:\x1b[1m", "vcs": value, "signature": "[bold]s"}])
    done = run(*files, "--name", "[/red]", "--name", "[bold]b")
    assert done.exit_code == 0, done.output
    for part in ("[/red] ", "[bold]b ", "[/x] :dog:\\x1b[1m ", "[bold]s"):
        assert part in done.stdout
    assert "\x1b" not in done.stdout


def test_many_systems_need_many_resamples_and_get_them_by_default(tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    files = [tmp_path / f"system-{number}.jsonl" for number in range(8)]
    for number, path in enumerate(files):
        write_pairs(path, lines((draw.uniform(0.3, 0.5, 20) + 0.02 * number).tolist()))
    assert (
        "No p can be below 0.55: raise --resamples."
        in run(*files, "--resamples", 100, "--all-pairs").stdout
    )
    # Enough of them by default: the first and the last are far apart, corrected for all pairs.
    found = json.loads(run(*files, "--format", "json", "--all-pairs").stdout)
    assert (len(found["systems"]), found["tests"], found["resamples"]) == (8, 28, 5600)
    [test] = [
        test
        for test in found["comparisons"]
        if (test["system"], test["baseline"]) == ("system-7", "system-0")
    ]
    assert max(test["p_bootstrap_corrected"], test["p_permutation_corrected"]) < 0.01


def test_names_of_systems(five: list[Path], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / "one.jsonl"
    twin.write_bytes(five[0].read_bytes())
    found = json.loads(run(five[0], twin, five[1], "--format", "json").stdout)
    assert [system["name"] for system in found["systems"]] == [str(five[0]), str(twin), "two"]
    found = json.loads(
        run(
            five[0], twin, "--name", "A", "--name", "B", "--baseline", "B", "--format", "json"
        ).stdout
    )
    assert [found[key] for key in ("baseline", "difference", "p_bootstrap", "moved")] == [
        "B",
        0.0,
        1.0,
        [],
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["one"], "give at least two score files"),
        (["one", "two", "--name", "A"], "give a name for each of the 2 files, not 1"),
        (["one", "two", "--name", "A", "--name", "A"], "two systems are called 'A'"),
        (["one", "two", "--baseline", "nine"], "baseline must be one of 'one', 'two', not 'nine'"),
        (["one", "two", "three", "--moved", "3"], "--moved compares the pairs of two systems"),
        (["one", "two", "--correction", "bonferroni"], "'bonferroni' is not one of 'holm', 'none'"),
    ],
)
def test_wrong_usage(five: list[Path], arguments: list[str], says: str) -> None:
    files = {path.stem: path for path in five}
    done = run(*(files.get(part, part) for part in arguments))
    assert done.exit_code == 2
    assert says in done.stderr


def test_few_pairs_say_that_they_cannot_earn_a_mark(tmp_path: Path) -> None:
    for count, said in ((5, True), (30, False)):
        files = [tmp_path / f"{name}{count}.jsonl" for name in "ab"]
        for path, value in zip(files, (0.9, 0.1), strict=True):
            write_pairs(path, lines([value + i / 1000 for i in range(count)]))
        text = run(*files, "--score", "VCS").stdout
        assert (f"With {count} pairs no difference can be significant." in text) == said
