"""The first page stays short, and each of its figures names the script that prints it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PROSE = re.sub(r"^```.*?^```$|<!--.*?-->", "", README, flags=re.M | re.S)
ROW = re.compile(
    r"^\| (?P<what>.+) \| (?P<figure>[\d.]+(?: (?:to|of) [\d.]+)?) \| `(?P<script>benchmarks/[\w/]+\.py)` \|$",
    re.M,
)


def test_the_readme_is_one_page() -> None:
    words = re.findall(r"[^\W\d_]+", re.sub(r"\]\([^)]*\)|`[^`]*`", "", PROSE))
    assert 400 < len(words) < 750


def test_every_figure_names_a_script_and_stands_on_a_page_of_measurements() -> None:
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs/benchmarks").glob("*.md"))
    rows = list(ROW.finditer(README))
    assert len(rows) == 10
    for row in rows:
        script = ROOT / row["script"]
        assert script.is_file(), row["script"]
        assert script.relative_to(ROOT).as_posix() in pages, f"{row['script']}: on no page"


def test_no_measurement_hides_in_the_text() -> None:
    rest = re.sub(r"\]\([^)]*\)|`[^`]*`|https?://\S+", "", ROW.sub("", PROSE))
    numbers = set(re.findall(r"\d[\d.,]*\d|\d+ ?%", rest))
    assert numbers == {"0.1.0", "86", "64", "2.0"}  # the version, the processor, the licence
