"""The probe of servers that give log-probabilities of generated answers: each fault is found by its check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support import fake_server as fake
from support.generating_server import GeneratingHandler
from support.visil_commands import visil
from vcs_visil import probe_generated
from vcs_visil.models.apis import Gemini, OpenAI

OPEN: dict[str, Callable[[str], Any]] = {
    "openai": OpenAI,
    "gemini": lambda url: Gemini(url, "made-up"),
}


FAULTS: list[tuple[type[fake.Fault], str]] = [
    (fake.AllZero, "numbers"), (fake.NotANumber, "numbers"), (fake.ImagesDropped, "images"),
    (fake.OnlyTheFirstImage, "images"), (fake.ImagesAsText, "images"), (fake.Deaf, "text"), (fake.Drifting, "same"),
]  # fmt: skip


@pytest.mark.parametrize("kind", OPEN)
def test_sound_servers_pass_the_probe_of_generated_answers(kind: str) -> None:
    with fake.serve(type("Sound", (GeneratingHandler,), {"headers_seen": []})) as (url, _):
        found = probe_generated(OPEN[kind](url))
        printed = visil(
            "probe", "--model", f"{kind}:{url}", "--method", "generate", "--model-name", fake.MODEL
        )
    assert [check.name for check in found] == ["numbers", "same", "text", "greedy", "images"]
    assert all(check.passed for check in found), found
    assert (printed.exit_code, printed.stdout.count("passed")) == (0, 5)


@pytest.mark.parametrize("kind", OPEN)
@pytest.mark.parametrize(("fault", "check"), FAULTS)
def test_faulty_servers_fail_it(kind: str, fault: type[fake.Fault], check: str) -> None:
    with fake.serve(type("Faulty", (GeneratingHandler,), {"headers_seen": []}), fault()) as (url, _):
        last = probe_generated(OPEN[kind](url))[-1]
    assert (last.name, last.passed) == (check, False)


class Sampling(GeneratingHandler):
    """Writes the second likeliest token."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = super().answer(body)
        choice = answer["choices"][0]
        entries = choice["logprobs"]["content"]
        for entry in entries:
            entry |= {name: entry["top_logprobs"][1][name] for name in ("token", "logprob")}
        choice["message"]["content"] = "".join(entry["token"] for entry in entries)
        return answer


def test_a_server_that_samples_fails_it() -> None:
    with fake.serve(type("Samples", (Sampling,), {"headers_seen": []})) as (url, _):
        last = probe_generated(OpenAI(url))[-1]
    assert (last.name, last.passed) == ("greedy", False)
    assert "another one is likelier" in last.detail
