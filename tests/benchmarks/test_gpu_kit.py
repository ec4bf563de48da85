"""`benchmarks/gpu/kit.py`: wheels in parts of limited size, which `cat` and `tar` join."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

KIT = Path(__file__).parents[2] / "benchmarks/gpu/kit.py"


def test_parts_joined_in_the_order_of_their_names_are_the_wheels(tmp_path: Path) -> None:
    wheels, kit, there = (tmp_path / name for name in ("made", "kit", "there"))
    wheels.mkdir()
    there.mkdir()
    noise = random.Random(0)
    for name in ("onnxruntime_gpu", "vcs_runtime", "some_numbers"):
        (wheels / f"{name}-1.0-py3-none-any.whl").write_bytes(noise.randbytes(150_000))
    home = tmp_path / "home"
    (home / "bundles/default").mkdir(parents=True)
    (home / "bundles/default/bundle.json").write_text("{}")
    command = [
        sys.executable,
        KIT,
        *f"{kit} --wheels {wheels} --part-mb 0.02 --without some-numbers".split(),
    ]
    subprocess.run(
        [*map(str, command)], check=True, env=os.environ | {"VCS_RUNTIME_HOME": str(home)}
    )
    parts = sorted(kit.iterdir())
    assert len(parts) > 10  # the order of names is that of the parts
    assert max(part.stat().st_size for part in parts) <= 20_000
    subprocess.run(f"cat {kit}/wheels.tar.* | tar x", shell=True, cwd=there, check=True)
    assert (there / "bundles/default/bundle.json").read_text() == "{}"
    found = {path.name: path.read_bytes() for path in (there / "wheels").iterdir()}
    expected = {
        path.name: path.read_bytes() for path in wheels.iterdir() if "some" not in path.name
    }
    assert found == expected
