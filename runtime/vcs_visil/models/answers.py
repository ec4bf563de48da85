"""What servers are sent and return: contents of messages, and values of JSON answers with checks."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from vcs_runtime.errors import ModelError
from vcs_visil.images import Image, Part


def chat_content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    """Return texts and images as the content of a message of OpenAI's chat API."""
    if not any(isinstance(part, Image) for part in parts):
        return "".join(part for part in parts if isinstance(part, str))
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {
            "type": "image_url",
            "image_url": {"url": f"data:{part.media_type};base64,{as_base64(part)}"},
        }
        for part in parts
    ]


def as_base64(image: Image) -> str:
    """Return the file of an image in base64."""
    return base64.b64encode(image.data).decode()


def get_at(value: Any, kind: Any, *path: str | int) -> Any:
    """Return the value of type `kind` at `path` in an answer; raise ModelError naming the path."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            raise ModelError(f"the server's answer has no {'.'.join(map(str, path))}") from None
    if not isinstance(value, kind):
        raise ModelError(f"the server's answer has {value!r} at {'.'.join(map(str, path))}")
    return value


def number(value: Any) -> float:
    """Return a log-probability of an answer; raise ModelError if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelError(f"the server's answer has {value!r} for a log-probability")
    return float(value)
