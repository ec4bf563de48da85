"""The page around a report: one file that fetches nothing and runs only the script in it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from functools import cache
from importlib.resources import files
from typing import Any

from vcs_runtime.util.printable import printable

# Digits of a number for the script. After four, rounding to three would be a second rounding.
DIGITS = 9
_STYLES = ("page.css", "overview.css", "pair.css")
_SCRIPTS = ("tools.js", "matrix.js", "pair.js", "systems.js", "list.js", "index.js")


@cache
def _asset(name: str) -> str:
    return files("vcs_runtime.report").joinpath(name).read_text("utf-8")


def head(title: str) -> str:
    """Return the HTML before the first block.

    The content security policy allows only this style and this script, and no requests.
    """
    style, script = _style(), _script()
    policy = (
        f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{html.escape(printable(title))}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        "<main><noscript>This report is drawn by a script that is part of it.</noscript></main>\n"
    )


def block(name: str, value: Any) -> str:
    """Return a value as an HTML element for the script: JSON, deflated, in base64.

    So no text of the value can be markup, and a browser neither runs nor draws the element.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    packed = base64.b64encode(zlib.compress(text.encode(), 6)).decode()
    return f'<script type="application/octet-stream" id="{name}">{packed}</script>\n'


def tail() -> str:
    """Return the HTML after all blocks: the script."""
    return f"<script>{_script()}</script>\n</body>\n</html>\n"


@cache
def _style() -> str:
    return "".join(map(_asset, _STYLES))


@cache
def _script() -> str:
    assets = "\n".join(map(_asset, _SCRIPTS))
    return "{\n" + assets.replace('"use strict";\n', "") + "}\n"


def _source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
