"""ViSIL on a synthetic video from its file to selection and correlation, on the CPU and without a network.

    python benchmarks/visil.py [--videos 8] [--frames 16] [--size 1280x720] [--seconds 20] [--rounds 3]

This needs the extras `visil`, `video` and `experiments`. The model is random (tests/lib/support/tiny_genai.py), so its
scores mean nothing, and its time is not the time of a real model. The benchmark shows the work around a model, and the
ratios between the ways of asking one. Where the system allows it, everything runs in a network namespace without a
network (`unshare -rn`).

Times are processor times, summed over all cores, so other work on the machine hardly changes them. The chain runs in a
process of its own. The memory of a step is the peak of the process after it. The ratios are medians over rounds in
which all ways take turns in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from sides import measure, peak_mb

from vcs_visil import Image, Summary, Video, frontier, mask_caption, probe, select_summary, visil
from vcs_visil.correlation import correlate
from vcs_visil.frames import VideoFile, format_timecode, parse_timecode, uniform
from vcs_visil.masking import builtin_keywords
from vcs_visil.models.genai import GenAI
from vcs_visil.prompts import builtin

_IN_NAMESPACE = "VISIL_BENCHMARK_WITHOUT_NETWORK"
RATE = Fraction(30000, 1001)
CAPTION = (
    "A man in a grey jacket drives a black sedan down a narrow street beside the river. A dog runs out of a red house, "
    "and the car stops. The man opens the window, whistles, and waits while the dog crosses toward the water. Seven "
    "cyclists pass, ringing their bells. Then he parks under a lamp, takes an umbrella and walks across the bridge."
)
TEXT = "A man stops his car for a dog and goes on by foot."


def write_video(path: Path, size: tuple[int, int], seconds: int, seed: int) -> None:
    """Write a video of drifting blocks of coloured noise, with a keyframe every two seconds."""
    import av

    width, height = size
    blocks = np.random.default_rng(seed).integers(0, 256, (height // 40, 2 * width // 40, 3), dtype=np.uint8)
    wide = np.kron(blocks, np.ones((40, 40, 1), np.uint8))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=RATE, options={"g": "60", "qscale": "4"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for i in range(round(seconds * RATE)):
            start = 2 * i % width
            pixels = np.ascontiguousarray(wide[:height, start : start + width])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())


class Steps:
    """Processor seconds of each step, summed over videos, and the peak of the process after it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start
        self.peaks[name] = peak_mb()


def chain(work: dict[str, Any]) -> dict[str, Any]:
    """Run every step for every video."""
    step, bytes_, scores = Steps(), 0, []
    loaded = peak_mb()
    frames_of: list[tuple[list[Image], list[Image]]] = []
    for path in work["videos"]:
        with step("frames"):
            file = VideoFile(Path(path))
            frames = file.read(uniform(file.frames, work["frames"]))
        with step("keyframes by timecode"):
            codes = [format_timecode(file.frames * i // 4, file.fps) for i in (1, 2, 3)]
            keyframes = file.read([parse_timecode(code, file.fps, frames=file.frames) for code in codes])
        frames_of.append((frames, keyframes))
        bytes_ += sum(len(image.data) for image in frames)
    with step("keywords, masks, prompts"):
        keywords = builtin_keywords(CAPTION)
        masked = mask_caption(CAPTION, keywords)
        for frames, _ in frames_of:
            builtin().fill("score", given=builtin().given(Video(frames)), masked_caption=masked.text)
    with step("model: load"):
        model = GenAI(Path(work["model"]), "cpu")
    with step("model: probe"):
        assert all(check.passed for check in probe(model))
    before = 0.0
    for i, (frames, keyframes) in enumerate(frames_of):
        with step("model: score of 3 summaries"):
            results = visil(Video(frames), CAPTION, keywords, summaries(keyframes), model)
        scores.append([(result.name, result.visil, result.tokens) for result in results])
        before = before or peak_mb() * (i > 0)  # after the second video
    growth = peak_mb() - before
    with step("selection and frontier"):
        chosen = [select_summary(listed, alpha) for listed in scores for alpha in (0.0, 0.001, 0.002, 0.01)]
        assert all(frontier(listed)[0].name == chosen[4 * i] for i, listed in enumerate(scores))
    with step("correlation, 160 made-up answers"):
        draw = np.random.default_rng(0)
        x = draw.normal(0, 2, 160)
        right = (draw.random(160) < 1 / (1 + np.exp(0.4 * x))).astype(int)
        correlate(x.tolist(), right.tolist())
    return {"seconds": step.seconds, "peaks": step.peaks, "loaded": loaded, "growth": growth,
            "png": bytes_ / work["frames"] / len(frames_of), "keywords": len(keywords)}  # fmt: skip


def summaries(keyframes: list[Image]) -> list[Summary]:
    """Return summaries as in the paper: text, one image, three images."""
    return [
        Summary(TEXT, name="text"), Summary(f"[KEYFRAME1] {TEXT}", keyframes[:1], "1-image"),
        Summary(f"[KEYFRAME1] [KEYFRAME2] [KEYFRAME3] {TEXT}", keyframes, "3-image"),
    ]  # fmt: skip


def ratios(work: dict[str, Any]) -> dict[str, Any]:
    """Measure the ways of asking on the first video, in turns: medians of processor seconds."""
    file = VideoFile(Path(work["videos"][0]))
    frames = file.read(uniform(file.frames, work["frames"]))
    three, model = summaries(frames[:3]), GenAI(Path(work["model"]), "cpu")
    keywords = builtin_keywords(CAPTION)
    ask: dict[str, Callable[[], object]] = {
        "three summaries in one call": lambda: visil(Video(frames), CAPTION, keywords, three, model),
        "one by one": lambda: [visil(Video(frames), CAPTION, keywords, [s], model) for s in three],
        "sequential": lambda: visil(Video(frames), CAPTION, keywords, three, model, method="sequential"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ask}
    for _ in range(work["rounds"]):
        for name, call in ask.items():
            start = time.process_time()
            call()
            seconds[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def without_network() -> str:
    """Run this script again without a network if possible; return a note for the output."""
    if os.environ.get(_IN_NAMESPACE):
        return "no network (unshare -rn)"
    tool = shutil.which("unshare")
    if tool and not subprocess.run([tool, "-rn", "true"], capture_output=True, check=False).returncode:
        os.environ[_IN_NAMESPACE] = "1"
        os.execv(tool, [tool, "-rn", sys.executable, *sys.argv])
    return "with a network: this system has no unshare"


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--child":
        work = json.loads(Path(sys.argv[2]).read_text("utf-8"))
        print(json.dumps({"chain": chain, "ratios": ratios}[work["what"]](work)))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--videos", type=int, default=8)
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--size", default="1280x720")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    network = without_network()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests/lib"))
    from support.tiny_genai import write_model

    width, height = map(int, arguments.size.split("x"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        videos = [str(folder / f"{i}.mp4") for i in range(arguments.videos)]
        for seed, path in enumerate(videos):
            write_video(Path(path), (width, height), arguments.seconds, seed)
        model = write_model(folder / "model", vision=True, context=16384)
        work = {"videos": videos, "model": str(model), "frames": arguments.frames, "rounds": arguments.rounds}
        steps = measure(__file__, folder, what="chain", **work)
        ways = measure(__file__, folder, what="ratios", **work)
    print(f"{arguments.videos} videos of {arguments.size}, {arguments.seconds} s; {arguments.frames} frames of "
          f"{steps['png'] / 1e3:.0f} kB; {steps['keywords']} keywords; {network}")  # fmt: skip
    print(f"modules loaded: peak {steps['loaded']:.0f} MB")
    per_video = ("frames", "keyframes by timecode", "model: score of 3 summaries")
    for step, seconds in steps["seconds"].items():
        count = arguments.videos if step in per_video else 1
        print(
            f"{step}: {seconds / count * 1e3:.1f} ms of processor{' a video' if count > 1 else ''}, peak {steps['peaks'][step]:.0f} MB"
        )
    print(f"peak grew by {steps['growth']:.1f} MB from the second video to the last")
    whole = ways["three summaries in one call"]
    for way in ("one by one", "sequential"):
        print(f"{way}: {ways[way] / whole:.2f} times the time of three summaries in one call")


if __name__ == "__main__":
    main()
