"""Door: the C API with arguments of any kind, by its functions in Python and, where there is a compiler, by the library."""

from __future__ import annotations

import ctypes
import math
import random
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ctypes import byref
from pathlib import Path
from typing import Any

from attack.cases import Attack, Door, Ground
from attack.damage import text
from support.capi_cases import TEXT, Host, host, new_results
from vcs_runtime import capi
from vcs_runtime.capi import Status, build
from vcs_runtime.errors import BuildError

_SIZES = (0, 1, 2, 2**31, 2**32, 2**63, 2**64 - 1)
_NUMBERS = (0.0, 0.5, -1.0, 2.0, math.nan, math.inf, -math.inf, 1e300, 5e-324)
_INTEGERS = (0, 1, 2, 3, -1, 32, 40, 2**31 - 1, -(2**31))


@contextmanager
def _open(ground: Ground) -> Iterator[Attack]:
    damaged = ground.folder / "damaged"
    shutil.copytree(ground.bundle, damaged)
    (damaged / "bundle.json").write_text("{")
    apis: list[Any] = [capi]
    try:
        build.find_tools()
        apis.append(capi.load(build.build(ground.folder / "library").file))
    except BuildError:
        pass  # the functions in Python are what the library calls
    with ExitStack() as stack:
        hosts = [stack.enter_context(host(api, ground.bundle, damaged)) for api in apis]
        right = [_probe(each) for each in hosts]

        def attack(rng: random.Random, folder: Path) -> list[str]:
            which = rng.randrange(len(hosts))
            each = hosts[which]
            status = _call(rng, each)
            found = []
            if status not in tuple(Status) or status == Status.VCS_INTERNAL:
                found.append(f"status {status}: {each.message()}")
            if status and not each.message():
                found.append(f"status {status} without a message")
            if rng.random() < 0.05 and _probe(each) != right[which]:
                found.append("another score than before")
            return found

        yield attack


def _probe(each: Host) -> float:
    result = new_results(1)[0]
    assert each.api.vcs_score(each.scorer, TEXT, len(TEXT), TEXT, len(TEXT), byref(result)) == 0, (
        each.message()
    )
    return float(result.vcs)


def _bytes(rng: random.Random) -> tuple[bytes | None, int]:
    """A text with its length, which is at times beyond what any text may have, never beyond its memory else."""
    if rng.random() < 0.05:
        return None, rng.choice((0, 5))
    content = (
        text(rng).encode("utf-8", "surrogatepass") if rng.random() < 0.8 else rng.randbytes(rng.randrange(60))
    )
    length = rng.choice((len(content),) * 9 + (rng.randrange(len(content) + 1), 2**63, 2**64 - 1))
    return content, length


def _handle(rng: random.Random, each: Host) -> int | None:
    kind = rng.random()
    if kind < 0.8:
        return each.scorer
    return rng.choice((None, 16, 1, each.model, each.closed, each.destroyed, each.orphan, 2**63))


def _changes(rng: random.Random) -> dict[str, Any]:
    fields = {
        "struct_size": (40, 32, 0, 44, 4096), "chunk_size": _INTEGERS, "short_form": _INTEGERS, "reserved": _INTEGERS,
        "lct": _NUMBERS, "context_cutoff": _NUMBERS, "context_window": _NUMBERS,
    }  # fmt: skip
    names = rng.sample(list(fields), rng.choice((0, 1, 1, 2)))
    return {name: rng.choice(fields[name]) for name in names}


def _call(rng: random.Random, each: Host) -> int:
    match rng.randrange(12):
        case 0:
            bundle = rng.choice(
                (each.bundle, each.damaged, b"", b"/", b"/nowhere", b"\xff", b"default", None, b"x" * 5000)
            )
            model = ctypes.c_void_p()
            device = rng.choice((b"cpu", b"cuda:0", b"cuda:99", b"tpu", b"", b"\xff", None, b"cpu:1"))
            status = int(each.api.vcs_model_open(bundle, device, byref(model)))
            if model.value:
                each.api.vcs_model_close(model.value)
            return status
        case 1 | 2:
            scorer = ctypes.c_void_p()
            model_ = rng.choice((each.model, each.model, each.model, each.closed, each.scorer, None, 8))
            status = int(
                each.api.vcs_scorer_create(model_, byref(each.params(**_changes(rng))), byref(scorer))
            )
            if scorer.value:
                each.api.vcs_scorer_destroy(scorer.value)
            return status
        case 3 | 4:
            columns = rng.choice((1, 2, 5))
            rows = rng.choice((1, 2, 5))
            values = [
                rng.uniform(-1, 1) if rng.random() < 0.97 else rng.choice(_NUMBERS)
                for _ in range(rows * columns)
            ]
            if rng.random() < 0.1:
                rows = rng.choice((*_SIZES[3:], 0))  # not more than the array has, but what is refused
            gas = rng.choice((rng.uniform(-1, 1), rng.choice(_NUMBERS)))
            result = new_results(1)[0]
            kind: Any = rng.choice((ctypes.c_double, ctypes.c_float))
            align = each.api.vcs_align_f64 if kind is ctypes.c_double else each.api.vcs_align_f32
            return int(
                align(
                    (kind * len(values))(*values),
                    rows,
                    columns,
                    gas,
                    byref(each.params(**_changes(rng))),
                    byref(result),
                )
            )
        case 5 | 6:
            pairs = [(_bytes(rng)[0] or b"", _bytes(rng)[0] or b"") for _ in range(rng.randrange(1, 4))]
            n = len(pairs)
            results = new_results(n)
            if rng.random() < 0.1:
                results[n - 1].struct_size = rng.choice((0, 8, 128, 4000))
            return int(each.api.vcs_score_batch(
                _handle(rng, each), (ctypes.c_char_p * n)(*[a for a, _ in pairs]), (ctypes.c_size_t * n)(*[len(a) for a, _ in pairs]),
                (ctypes.c_char_p * n)(*[b for _, b in pairs]), (ctypes.c_size_t * n)(*[len(b) for _, b in pairs]), n, results,
            ))  # fmt: skip
        case _:
            result = new_results(1)[0]
            if rng.random() < 0.05:
                result.struct_size = rng.choice((0, 8, 128))
            return int(each.api.vcs_score(_handle(rng, each), *_bytes(rng), *_bytes(rng), byref(result)))


CAPI = Door("capi", 4, "calls of the C API with handles, sizes and texts of any kind", _open)
