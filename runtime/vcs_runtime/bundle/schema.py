"""The JSON schema of `bundle.json`, made from the types of `bundle.manifest`.

`python -m vcs_runtime.bundle.schema > runtime/vcs_runtime/data/bundle.schema.json` writes the
published file.
"""

from __future__ import annotations

import json

import msgspec

from vcs_runtime.bundle.manifest import SCHEMA, Manifest


def json_schema() -> str:
    """Return the text of `data/bundle.schema.json`."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:vcs-runtime:bundle:{SCHEMA}",
        "title": f"bundle.json of vcs-runtime, schema {SCHEMA}",
        "description": (
            "A bundle: one or several models as vcs-runtime loads them. Schemas 2 and 3 are the"
            " same without the keys that have a default. Beyond this schema: every path is in"
            " `files`; no path is listed twice, nor differs from another by case alone; no key"
            " stands twice; at most 4 MiB in all."
        ),
        **msgspec.json.schema(Manifest),
    }
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    print(json_schema(), end="")
