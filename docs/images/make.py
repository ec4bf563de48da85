"""Make the pictures of a report in this folder, from the texts in docs/examples.

    python docs/images/make.py [FOLDER]

`make docs` makes them anew in the manual that it builds. Needs Playwright and Chromium, Pillow, and
the default bundle; without Chromium nothing is made.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent
EXAMPLES = IMAGES.parent / "examples"
WIDTH = 1280
BROWSERS = ("chromium", "google-chrome", "chromium-browser")


def vcs(*arguments: object) -> None:
    """Run a command of vcs-runtime."""
    subprocess.run([sys.executable, "-m", "vcs_runtime", *map(str, arguments)], check=True)


def write_report(folder: Path) -> Path:
    """Score the three systems of the examples, and report on them."""
    texts = ("--references", EXAMPLES / "references.json", "--predictions", EXAMPLES / "systems")
    scores = folder / "scores"
    scores.mkdir()
    vcs("score", *texts, "-o", scores)
    report = folder / "report.html"
    vcs("report", *sorted(scores.iterdir()), *texts, "-o", report, "--title", "Five short films")
    return report


def browser_program() -> str | None:
    """Return the path of Chromium or Chrome, if there is one."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextmanager
def opened(report: Path) -> Iterator[Any]:
    """Open a report in Chromium, in the light scheme."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_program(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        page.goto(report.as_uri())
        page.wait_for_selector("body[data-ready]")
        yield page
        browser.close()


def save(page: Any, path: Path, height: int) -> None:
    """Save the top of the page with 256 colours, which halves the file."""
    page.set_viewport_size({"width": WIDTH, "height": height})
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def take_overview(page: Any, path: Path) -> None:
    """Take the overview, to the end of the dots of one system against another."""
    height = page.evaluate(
        "document.querySelector('.scatter').getBoundingClientRect().bottom + scrollY"
    )
    save(page, path, int(height) + 8)


def take_pair(page: Any, path: Path, system: str, pair: str) -> None:
    """Take the page of a pair: texts unfolded, a chunk and its match marked."""
    number = 0
    while True:
        page.evaluate(f"location.hash = '#pair-{number}'")
        page.wait_for_selector(f"body[data-ready='#pair-{number}']")
        if page.inner_text("h1") == pair and f"system: {system}" in page.inner_text(".about-pair"):
            break
        number += 1
    page.hover("#generated-0")
    page.mouse.move(WIDTH - 4, 4)
    page.evaluate("scrollTo(0, 0)")
    save(page, path, 1240)


def main() -> None:
    """Make all pictures, in the folder that the command line names or in this one."""
    images = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    if browser_program() is None:
        print("No Chromium is installed: the pictures stay as they are.")
        return
    with tempfile.TemporaryDirectory() as folder, opened(write_report(Path(folder))) as page:
        take_overview(page, images / "report-overview.png")
        take_pair(page, images / "report-pair.png", "gamma", "museum")


if __name__ == "__main__":
    main()
