"""The description of the endpoints: an OpenAPI document, and a page for people."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from vcs_runtime.scoring.example import EXAMPLE
from vcs_runtime.scoring.score_table import ALL
from vcs_runtime.serve.limits import Limits
from vcs_runtime.serve.messages import ManyRequest, OneRequest

_SCORES = {name: {"type": "number"} for name in ALL}
_TEXT = {"type": "string"}
_LINE = {
    "type": "object",
    "description": (
        "Scores of a pair, or an error, with the id of the pair if it has one. Scores in addition"
        " to VCS, such as HM-CF, are included if the server was started with them."
    ),
    "properties": {
        "id": {"type": ["string", "integer"]},
        **_SCORES,
        "n_ref": {"type": "integer"},
        "n_gen": {"type": "integer"},
        "flags": {"type": "array", "items": _TEXT},
        "segmenter": {"type": ["string", "null"]},
        "reference_index": {"type": "integer", "description": "Only for several references."},
        "n_references": {"type": "integer", "description": "Only for several references."},
        "error": _TEXT,
        "signature": _TEXT,
    },
    "required": ["signature"],
}
_REFUSALS = {
    400: "the request is malformed; the sentence names the field",
    401: "the token is missing or wrong",
    408: "the body did not arrive in time",
    413: "the body or a pair is too large, or there are too many pairs",
    429: "too many requests are waiting; the header Retry-After has the seconds to wait",
    500: "the machine failed, such as a GPU without memory",
    503: "not scored in time, or the server is stopping",
}
#: Path, method and summary of each endpoint.
ENDPOINTS: Final = (
    ("/score", "post", "Score one pair, or several under pairs."),
    ("/explain", "post", "Verdicts for every chunk, and what each part of the score cost."),
    ("/livez", "get", "alive, also while models are loading."),
    ("/readyz", "get", "ready with signature and device; loading or compiling with status 503."),
    ("/health", "get", "The same as /readyz."),
    ("/metrics", "get", "Counters in the text format of Prometheus."),
    ("/openapi.json", "get", "This description for programs."),
    ("/docs", "get", "This description for people."),
)


def document(version: str) -> dict[str, Any]:
    """Return the OpenAPI document."""
    bodies, components = msgspec.json.schema_components(
        (OneRequest, ManyRequest), ref_template="#/components/schemas/{name}"
    )
    components |= {"Line": _LINE, "Error": {"type": "object", "properties": {"error": _TEXT}}}
    paths = {}
    for path, method, summary in ENDPOINTS:
        operation = {"summary": summary, "responses": {"200": {"description": "The answer."}}}
        if method == "post":
            line = {"$ref": "#/components/schemas/Line"} if path == "/score" else {"type": "object"}
            operation = _scoring_operation(summary, bodies, line)
        paths[path] = {method: operation}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "vcs-runtime",
            "version": version,
            "description": "Video Comprehension Scores.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _scoring_operation(summary: str, bodies: Iterable[Any], line: Any) -> dict[str, Any]:
    """Describe an endpoint that answers each pair with a `line`, or refuses the request."""
    several = {"type": "object", "properties": {"results": {"type": "array", "items": line}}}
    responses: dict[str, Any] = {
        "200": {"description": "The answer.", "content": _json({"oneOf": [line, several]})}
    }
    error = _json({"$ref": "#/components/schemas/Error"})
    for status, meaning in _REFUSALS.items():
        responses[str(status)] = {"description": meaning, "content": error}
    return {
        "summary": summary,
        "responses": responses,
        "requestBody": {"required": True, "content": _json({"oneOf": list(bodies)}, EXAMPLE)},
        "security": [{}, {"token": []}],
    }


def docs_page(version: str, limits: Limits) -> str:
    """Return the page for people: one HTML document that loads nothing else."""
    rows = "".join(
        f"<tr><td><code>{method.upper()} {path}</code></td><td>{html.escape(summary)}</td></tr>"
        for path, method, summary in ENDPOINTS
    )
    statuses = "".join(
        f"<tr><td>{status}</td><td>{meaning}</td></tr>" for status, meaning in _REFUSALS.items()
    )
    example = html.escape(
        json.dumps({**EXAMPLE, "id": "clip 1", "options": {"preset": "paper"}}, indent=2)
    )
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>vcs-runtime {version}</title>
<meta name="viewport" content="width=device-width">
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }}
td {{ padding: .2rem 1rem .2rem 0; vertical-align: top }}
pre {{ background: #f3f3f3; padding: 1rem; white-space: pre-wrap }}
@media (prefers-color-scheme: dark) {{
  body {{ background: #181818; color: #ddd }}
  pre {{ background: #282828 }}
}}
</style>
<h1>vcs-runtime {version}</h1>
<p>Video Comprehension Scores over HTTP. <a href="/openapi.json">openapi.json</a> describes all \
fields.</p>
<table>{rows}</table>
<h2>A request to /score or /explain</h2>
<pre>{example}</pre>
<p>Several pairs: <code>{{"pairs": [{{"reference": …, "generated": …}}, …], "options": \
…}}</code>, answered by
<code>{{"results": […]}}</code>. <code>reference</code> may be a list of texts. \
<code>options</code> are
preset, chunk_size, lct, aggregate and short. A pair that cannot be scored has an
<code>error</code> in its place.</p>
<h2>Refusals</h2>
<p>Other answers than 200 hold <code>{{"error": "one sentence"}}</code>. A body has at most
{limits.max_body_mb:g} MB and {limits.max_pairs} pairs.</p>
<table>{statuses}</table>
</html>
"""


def _json(schema: Any, example: Any = None) -> dict[str, Any]:
    media = {"schema": schema}
    if example:
        media["example"] = example
    return {"application/json": media}
