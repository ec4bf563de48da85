"""The command line: exit codes, one line per error, no traceback."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

import vcs_numba
from support.command_line import Finished, assert_refused, vcs
from support.processes import captured, run_python
from support.stories import read_lines, story, write_pairs
from vcs_numba import Params
from vcs_runtime import Options, Scorer
from vcs_runtime.bundle.paths import default_bundle_path
from vcs_runtime.cli.citation import LINKS
from vcs_runtime.inference import nvidia


def assert_one_line(done: Finished, code: int, *says: str) -> None:
    assert done.code == code, done
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for part in says:
        assert part in done.stderr


@pytest.fixture
def engine(tiny_bundle: Path) -> tuple[object, ...]:
    return ("--bundle", tiny_bundle, "--device", "cpu")


def test_a_file_of_pairs(
    scorer: Scorer, engine: tuple[object, ...], pairs_file: Path, tmp_path: Path
) -> None:
    done = vcs("score", pairs_file, "-o", tmp_path / "o.jsonl", "--json", *engine)
    assert (done.code, done.stderr) == (0, "")  # no progress bar where nobody looks
    summary = json.loads(done.stdout)
    assert (summary["scored"], summary["failed"]) == (12, 0)
    assert summary["signature"] == scorer.signature
    assert set(summary["scores"]["vcs"]) == {"mean", "sd", "ci95"}
    assert len(read_lines(tmp_path / "o.jsonl")) == 12


def test_the_summary_is_a_table_for_people(engine: tuple[object, ...], pairs_file: Path) -> None:
    done = vcs("score", pairs_file, *engine)
    assert done.code == 0
    assert "12 scored, 0 failed" in done.stdout
    assert "vcs|def:1.0.0|chunk:1|" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 160


@pytest.mark.parametrize(
    ("there", "verbose", "options", "says"),
    [
        (False, (), (), ""),
        (False, ("-v",), (), "vcs-runtime: ort-cpu (auto: "),
        (True, (), (), "vcs-runtime: the GPU is not used: ort-cpu (auto: "),
        (True, (), ("--device", "cpu"), ""),  # as asked
        (False, ("--verbose",), ("--device", "cpu"), "vcs-runtime: ort-cpu (named)"),
    ],
)
def test_the_device_is_reported_where_a_gpu_is_unused_or_on_request(
    tiny_bundle: Path,
    pairs_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: bool,
    verbose: tuple[str, ...],
    options: tuple[str, ...],
    says: str,
) -> None:
    monkeypatch.setattr(nvidia, "gpu_is_there", lambda: there)
    done = vcs(*verbose, "score", pairs_file, "--bundle", tiny_bundle, *options)
    assert done.code == 0
    assert done.stderr.startswith(says)
    assert len(done.stderr.splitlines()) == bool(says)


def test_cite_prints_entries_with_the_addresses_of_the_help() -> None:
    cited = vcs("--cite")
    assert (cited.code, cited.stderr) == (0, "")
    assert cited.stdout.count("@") == 3
    assert cited.stdout.count("{") == cited.stdout.count("}")
    help_text = vcs("--help").stdout
    for address in LINKS.values():
        assert address in cited.stdout
        assert address in help_text


def test_zeros_are_counted_and_explained(engine: tuple[object, ...], tmp_path: Path) -> None:
    # Two chunks against three are 0, one against one has no order, equal texts score 1.
    pairs = [(story(i, 3), story(20 + i, 2)) for i in range(5)]
    pairs += [(story(1, 1), story(1, 1)), (story(2), story(2)), (story(3), story(3))]
    source = tmp_path / "p.jsonl"
    rows = [{"reference": reference, "generated": generated} for reference, generated in pairs]
    write_pairs(source, rows)
    done = vcs("score", source, "-o", tmp_path / "o.jsonl", *engine)
    text = " ".join(done.stdout.split())
    assert "5 of 8 pairs have a VCS of 0 because order cannot be judged." in text
    assert (
        "Order could not be judged in 6 of 8 pairs: 1 with one chunk in each text, 5 with numbers of"
        " chunks that are too small or too different." in text
    )
    assert "report margin, GAS and LAS (default options), and how many" in text
    assert "The mean VCS of the others is 1.000." in text
    assert "nas_l" in vcs("score", source, "--all", *engine).stdout
    strict = vcs("score", source, "--also", "substitution", "--words", engine[1], *engine).stdout
    assert "\nmargin_strict " in strict
    assert "\nvcs_strict " not in strict
    names = [row.split()[0] for row in done.stdout.splitlines()[1:6]]
    assert names == "vcs margin gas las nas".split()
    vcs_row = next(row for row in done.stdout.splitlines() if row.startswith("vcs ")).split()
    assert vcs_row[1] == "0.375"
    summary = json.loads(vcs("score", source, "--json", *engine).stdout)
    assert summary["zeros"] == {
        "pairs": 5,
        "below_gate": 0,
        "zero_order": 0,
        "zero_content": 0,
        "order_undefined": 5,
    }
    judged = summary["not_judged"]
    assert (judged["pairs"], judged["order_undefined"], judged["single_chunks"]) == (6, 5, 1)
    assert judged["scores_without"]["vcs"]["mean"] == pytest.approx(1.0)
    flags = [line["flags"] for line in read_lines(tmp_path / "o.jsonl")]
    assert flags == [*[["order_undefined"]] * 5, ["single_chunks"], [], []]


def test_input_that_is_not_meant_is_refused_with_what_to_type(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(json.dumps({"model": "m", "samples": [{"reference": "a"}]}))
    assert_one_line(
        vcs("score", tmp_path / "w.json"),
        2,
        "w.json: an object with 'model', 'samples'; 'samples' is a list of 1 objects: add --rows"
        " samples\n",
    )
    assert_one_line(
        vcs("score", tmp_path / "w.json", "--rows", "samples"), 2, "entry 1: no 'generated'"
    )
    for name in ("bakery", "lake.mp4"):
        (tmp_path / f"{name}.json").write_text(json.dumps({name: "A man."}))
    inputs = (
        "--references",
        tmp_path / "bakery.json",
        "--predictions",
        tmp_path / "lake.mp4.json",
    )
    assert_one_line(vcs("score", *inputs, "-o", tmp_path / "o.jsonl"), 2, "no id is the same as in")
    assert not (tmp_path / "o.jsonl").exists()
    assert "put each text into a file" in vcs("score", "A man walks.", "A man runs.").stderr


def test_a_job_without_zeros_says_nothing_of_them(
    engine: tuple[object, ...], tmp_path: Path
) -> None:
    rows = [{"reference": story(i), "generated": story(i)} for i in range(2)]
    write_pairs(tmp_path / "p.jsonl", rows)
    text = vcs("score", tmp_path / "p.jsonl", *engine).stdout
    assert "No pair has a VCS of 0. Report VCS and margin." in text
    assert "judged" not in text
    summary = json.loads(vcs("score", tmp_path / "p.jsonl", "--json", *engine).stdout)
    assert summary["zeros"]["pairs"] == 0
    assert summary["not_judged"] == {"pairs": 0, "order_undefined": 0, "single_chunks": 0}


def test_the_zero_of_one_pair_is_explained_first(
    engine: tuple[object, ...], tmp_path: Path
) -> None:
    (tmp_path / "ref").write_text(story(1, 3))
    (tmp_path / "gen").write_text(story(2, 2))
    pair = (tmp_path / "ref", tmp_path / "gen")
    sentence = "VCS is 0 by definition: with 3 and 2 chunks order cannot be judged."
    assert vcs("score", *pair, *engine).stdout.startswith(sentence)
    assert sentence in vcs("explain", *pair, *engine).stdout
    explained = json.loads(vcs("explain", *pair, "--json", *engine).stdout)
    assert explained["sentences"]["vcs"].startswith(sentence)
    assert explained["flags"] == ["order_undefined"]


def test_one_pair_from_two_files(
    scorer: Scorer, engine: tuple[object, ...], tmp_path: Path
) -> None:
    for name, seed in (("ref", 1), ("ref2", 2), ("gen", 3)):
        (tmp_path / name).write_text(story(seed))
    pair = (tmp_path / "ref", tmp_path / "gen")
    done = vcs("score", *pair, "--json", *engine)
    assert json.loads(done.stdout) == scorer.score(story(1), story(3)).to_dict()
    done = vcs("score", tmp_path / "ref2", *pair, *engine)
    assert done.code == 0
    assert "of 2 counts" in done.stdout


def test_presets_and_what_overrides_them(engine: tuple[object, ...], pairs_file: Path) -> None:
    def fields(*options: object) -> str:
        done = vcs("score", pairs_file, "--json", *options, *engine)
        return "|".join(json.loads(done.stdout)["signature"].split("|")[2:4])

    assert fields() == "chunk:1|lct:0"
    assert fields("--preset", "paper") == "chunk:3|lct:0.1"
    assert fields("--preset", "paper", "--lct", "0.5") == "chunk:3|lct:0.5"
    assert fields("--preset", "table-lct1", "--chunk-size", "2") == "chunk:2|lct:1"
    assert fields("--short") == "chunk:word|lct:0"


def test_some_pairs_failed_is_exit_code_1(engine: tuple[object, ...], tmp_path: Path) -> None:
    source = tmp_path / "p.jsonl"
    rows = [
        {"reference": story(1), "generated": story(2)},
        {"id": "x", "reference": story(1), "generated": " "},
    ]
    write_pairs(source, rows)
    done = vcs("score", source, "-o", tmp_path / "o.jsonl", *engine)
    assert_one_line(done, 1, f"{source} line 2 (id x): generated: the text is empty")
    assert "1 scored, 1 failed" in done.stdout
    done = vcs("score", source, "-o", tmp_path / "o.jsonl", "--resume", *engine)
    assert_one_line(done, 1, "line 2 (id x)")


def test_unreadable_input_is_exit_code_2(
    engine: tuple[object, ...], pairs_file: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text(pairs_file.read_text() + "{nonsense\n")
    assert_one_line(vcs("score", broken, *engine), 2, f"{broken} line 13: not JSON")
    assert_one_line(vcs("score", tmp_path / "no.jsonl", *engine), 2, "no.jsonl: No such file")
    one = ("score", tmp_path / "no.txt", tmp_path / "no.txt")
    assert_one_line(vcs(*one, *engine), 2, "no.txt: No such file")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9.")
    one = ("score", tmp_path / "latin.txt", tmp_path / "latin.txt")
    assert_one_line(vcs(*one, *engine), 2, "latin.txt: not UTF-8 (byte 3)")


@pytest.mark.parametrize(
    "arguments",
    [
        ("score",),
        ("score", "p.jsonl", "g.txt"),
        ("score", "r.txt", "g.txt", "--format", "csv"),
        ("score", "p.jsonl", "--resume"),
        ("score", "p.jsonl", "-o", "o", "--resume", "--overwrite"),
        ("score", "p.jsonl", "--lct", "-1"),
        ("score", "p.jsonl", "--lct", "nan"),
        ("score", "p.jsonl", "--chunk-size", "0"),
        ("score", "p.jsonl", "--aggregate", "median"),
        ("score", "p.jsonl", "--short", "--chunk-size", "2"),
        ("score", "p.jsonl", "--preset", "mine"),
        ("score", "p.jsonl", "--help-some"),
        ("score", "p.jsonl", "--threads", "2147483648"),
        ("score", "p.jsonl", "--max-pair-gb", "0"),
        ("fetch", "other"),
        ("nonsense",),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    done = vcs(*arguments)
    assert_refused(done, "Error: ")
    assert "Traceback" not in done.stderr


PARAMS = """
lct = 0.25
lct_penalty = "excess"
regularizer = "length"
nas_blend_factor = 0.5
[thresholds]
support = 0.9
"""


def test_parameters_come_from_a_file_and_lct_from_the_option(
    engine: tuple[object, ...], pairs_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "p.toml").write_text(PARAMS)

    def signature(*options: object) -> str:
        done = vcs(
            "score", pairs_file, "--json", "--params", tmp_path / "p.toml", *options, *engine
        )
        return str(json.loads(done.stdout)["signature"])

    params = Params(lct=0.25, lct_penalty="excess", regularizer="length", nas_blend_factor=0.5)
    with Scorer.open(engine[1], device="cpu") as scorer:  # type: ignore[arg-type]
        assert signature() == scorer.signature_for(Options(params=params))
        assert signature("--preset", "paper") == scorer.signature_for(
            Options(chunk_size=3, params=params)
        )
        assert signature("--lct", 2) == scorer.signature_for(
            Options(params=replace(params, lct=2.0))
        )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("lct = ", "Invalid value"),
        ("lct_penatly = 1", "unknown key 'lct_penatly' (the keys are lct, context_cutoff, "),
        ("context_cutoff = 2", "context_cutoff must be"),
        ("small_text = 3", "small_text must be 'paper' or 'reference', not 3"),
        ("thresholds = 3", "thresholds must be a table, [thresholds]"),
        ("[thresholds]\nsuport = 1", "unknown key 'suport' (the keys are support, rival,"),
        ("[thresholds]\nsupport = 7", "support must be a number between -1 and 1, not 7"),
        (None, "No such file"),
    ],
)
def test_a_file_of_parameters_that_cannot_be_used_is_named_with_the_key(
    content: str | None, says: str, pairs_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "p.toml"
    if content is not None:
        path.write_text(content)
    done = vcs("score", pairs_file, "--params", path)
    assert_one_line(done, 2, f"{path}: ")
    assert says in done.stderr


def test_scoring_imports_nothing_of_experiments_or_visil(
    tiny_bundle: Path, pairs_file: Path
) -> None:
    code = """
        import sys
        from vcs_runtime.cli import main
        try:
            main(["score", *sys.argv[1:], "--device", "cpu"])
        except SystemExit as end:
            print(end.code, *{name.split(".")[0] for name in sys.modules if \
name.startswith("vcs_")})
    """
    command = [sys.executable, "-c", textwrap.dedent(code), pairs_file, "--bundle", tiny_bundle]
    done = captured(command, check=True)
    assert set(done.stdout.splitlines()[-1].split()) == {"0", "vcs_numba", "vcs_runtime"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("score", ""),
        ("score", "p.jsonl", "-o", ""),
        ("capi", "build", "-o", ""),
        ("export", "sat", "--from", "", "-o", "x"),
        ("bundle", "verify", ""),
        ("bundle", "pack", "", "-o", "a.tar"),
        ("bundle", "info", ""),
        ("score", "p.jsonl", "--bundle", ""),
        ("score", "p.jsonl", "--segmenter", ""),
        ("score", "p.jsonl", "--words", ""),
    ],
)
def test_an_empty_path_is_refused(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes of a variable that is not set, and would mean the folder at hand."""
    monkeypatch.chdir(tmp_path)
    done = vcs(*arguments)
    assert (done.code, list(tmp_path.iterdir())) == (2, [])
    assert "the path must not be empty: is a variable" in done.stderr


@pytest.mark.parametrize("command", [("score", "p.jsonl"), ("report", "p.jsonl"), ("kit",)])
def test_standard_output_is_no_output_file(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = vcs(*command, "-o", "-")
    assert (done.code, list(tmp_path.iterdir())) == (2, [])
    assert "name a file" in done.stderr


def test_a_wrong_device_is_exit_code_2(tiny_bundle: Path, pairs_file: Path, tmp_path: Path) -> None:
    done = vcs("score", pairs_file, "--bundle", tiny_bundle, "--device", "gpu")
    assert_refused(done, "device must be")
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles/default").symlink_to(tiny_bundle)
    done = vcs("demo", "--device", "gpu", VCS_RUNTIME_HOME=str(tmp_path))
    assert_refused(done, "device must be")
    done = vcs("score", pairs_file, "--bundle", tiny_bundle, "--device", "cuda:0")
    assert_one_line(done, 2, "no CUDAExecutionProvider")


def test_a_missing_default_bundle_names_the_command(pairs_file: Path, tmp_path: Path) -> None:
    done = vcs("score", pairs_file, "--device", "cpu", VCS_RUNTIME_HOME=str(tmp_path / "home"))
    assert_one_line(done, 2, "`vcs-runtime fetch default`", str(tmp_path / "home"))
    assert not (tmp_path / "home").exists()


def test_demo_prints_a_readable_table(tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles/default").symlink_to(tiny_bundle)
    done = vcs("demo", "--device", "cpu", VCS_RUNTIME_HOME=str(tmp_path))
    assert (done.code, done.stderr) == (0, "")
    assert "the reference itself   1.000" in done.stdout
    for columns in (80, 60):
        narrow = vcs(
            "demo", "--device", "cpu", VCS_RUNTIME_HOME=str(tmp_path), COLUMNS=str(columns)
        ).stdout
        assert max(map(len, narrow.splitlines()[:-1])) <= columns
        assert set(re.findall("[a-z]+", narrow)) >= set(re.findall("[a-z]+", done.stdout))
        assert ("Not shown here: LAS recall." in narrow) == (columns == 60)


def test_help_and_version() -> None:
    assert "score" in vcs("--help").stdout
    assert vcs("--version").stdout.startswith("vcs-runtime, version ")
    assert "--resume" in vcs("score", "-h").stdout


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--version"], "numpy numba onnxruntime rich"),
        (["--help"], "numpy numba onnxruntime rich"),
        (["score", "--help"], "numba onnxruntime"),
    ],
)
def test_what_only_answers_does_not_import_what_only_scores(
    arguments: list[str], absent: str
) -> None:
    script = (
        f"import atexit, sys\natexit.register(lambda: print(*[name for name in {absent.split()} if"
        " name in sys.modules], file=sys.stderr))\nfrom vcs_runtime.__main__ import"
        f" main\nsys.argv[1:] = {arguments}\nmain()"
    )
    done = run_python("-c", script, check=True)
    assert "vcs-runtime" in done.stdout
    assert done.stderr.split() == []


def test_public_names_are_listed_before_they_are_imported() -> None:
    script = (
        "import vcs_runtime as v; print(set(v.__all__) - set(dir(v)), 'Scorer' in vars(v));"
        " v.errors.VcsError"
    )
    done = run_python("-c", script, check=True)
    assert done.stdout == "set() False\n"


def test_a_cache_folder_serves_later_runs_and_a_bad_one_is_named(
    engine: tuple[object, ...], pairs_file: Path, tmp_path: Path
) -> None:
    outputs = [tmp_path / "a", tmp_path / "b"]
    for output in outputs:
        finished = vcs("score", pairs_file, "-o", output, "--cache", tmp_path / "cache", *engine)
        assert finished.code == 0
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    done = vcs("score", pairs_file, "--cache", pairs_file, *engine)
    assert_one_line(done, 2, "vector cache", str(pairs_file))


def test_a_segmenter_of_another_bundle(
    engine: tuple[object, ...], sat_bundle: Path, mixed_bundle: Path, tmp_path: Path
) -> None:
    source = tmp_path / "p.jsonl"
    rows = [
        {"reference": story(1).replace(".", ""), "generated": story(2)},
        {"reference": story(1), "generated": story(2)},
    ]
    write_pairs(source, rows)
    done = vcs("score", source, "--json", "--segmenter", mixed_bundle, *engine)
    assert (done.code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["segmenters"] == {"tiny-sat": 1, "sentencex": 1}
    done = vcs("score", source, "--segmenter", mixed_bundle, *engine)
    mix = (
        "Pairs were split as follows: 1 by the learned segmenter (tiny-sat), 1 by rules"
        " (sentencex). Two "
    )
    assert mix in done.stdout
    done = vcs("score", source, "--json", "--segmenter", sat_bundle, *engine)
    assert "segmenters" not in json.loads(done.stdout)
    assert_one_line(
        vcs("score", source, "--segmenter", "learned", *engine),
        2,
        "has no learned segmenter",
    )
    assert_one_line(
        vcs("score", source, "--segmenter", "nowhere", *engine), 2, "bundle nowhere: no such folder"
    )


@pytest.mark.slow
def test_a_score_after_fetch_compiles_nothing(
    engine: tuple[object, ...], pairs_file: Path, tmp_path: Path
) -> None:
    package = tmp_path / "vcs_numba"
    compiled = "__pycache__"
    shutil.copytree(
        Path(vcs_numba.__file__).parent, package, ignore=shutil.ignore_patterns(compiled)
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "vcs_runtime"]

    def score() -> str:
        scored = captured(
            [*command, "score", str(pairs_file), *map(str, engine)], env=environment, cwd=tmp_path
        )
        return scored.stderr

    assert "first run: compiling" in score()
    for folder in list(package.rglob(compiled)):
        shutil.rmtree(folder)
    fetched = captured([*command, "fetch", "default"], env=environment, cwd=tmp_path)
    assert "compiling for this machine" in fetched.stderr
    assert fetched.stdout == f"{default_bundle_path()}\n"
    assert score() == ""


def test_an_unexpected_exception_is_one_line_and_exit_code_3(
    engine: tuple[object, ...], pairs_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(Scorer, "stream", broken)
    done = vcs("score", pairs_file, *engine, VCS_RUNTIME_DEBUG="0")
    assert_one_line(done, 3, "vcs-runtime: unexpected ZeroDivisionError: division by zero")
    done = vcs("score", pairs_file, *engine, VCS_RUNTIME_DEBUG="1")
    assert done.code == 3
    assert "Traceback" in done.stderr


def test_a_missing_extra_is_exit_code_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    reference, generated = tmp_path / "reference.txt", tmp_path / "generated.txt"
    reference.write_text("A dog runs. A cat sits.")
    generated.write_text("A dog runs.")
    done = vcs("report", reference, generated, "-o", tmp_path / "r.pdf")
    assert_one_line(done, 2, "drawing figures needs matplotlib", "install `vcs-runtime[report]`")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("bundle", "verify", "{bundle}"), 0), (("bundle", "verify", "nowhere"), 2), (("score",), 2)],
)
def test_a_process_ends_with_the_exit_code(
    arguments: tuple[str, ...], code: int, tiny_bundle: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "vcs_runtime",
        *(part.format(bundle=tiny_bundle) for part in arguments),
    ]
    done = captured(command)
    assert done.returncode == code, done
    assert ("vcs-runtime: " in done.stderr or "Error: " in done.stderr) == bool(code)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["--version"], ["bundle", "info"], ["bundle", "info", "--json"]])
def test_a_closed_standard_output_is_no_success(words: list[str], tiny_bundle: Path) -> None:
    given = [str(tiny_bundle)] if len(words) > 1 else []
    command = [sys.executable, "-m", "vcs_runtime", *words, *given]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True, check=False
    )
    said = "vcs-runtime: standard output: Bad file descriptor\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_reader_that_goes_away_is_no_error_message(words: list[str], tiny_bundle: Path) -> None:
    command = [sys.executable, "-m", "vcs_runtime", "bundle", "info", str(tiny_bundle), *words]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")
