"""Write the JSON Schema files of this folder from the forms, after one changed: ``python -m probe_format.schema``."""

import json
from pathlib import Path

from .calls import CONSTRUCT, STACK
from .dump import schema
from .report import SCHEMA

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_FILES = {
    "dump": ("what was recorded", schema("dump")),
    "debug": ("single values that were saved by name", schema("debug")),
    "stack": ("where each call was made", STACK),
    "construct": ("which call ran inside which module", CONSTRUCT),
    "report": ("what a dump holds, what it does not and why", SCHEMA),
}


def files() -> dict[str, str]:
    """Return the name of each file and its text."""
    texts: dict[str, str] = {}
    for name, (title, form) in _FILES.items():
        head = {"$schema": _DIALECT, "$id": f"urn:probe-format:1.0:{name}", "title": f"{name}.json: {title}"}
        texts[f"{name}.schema.json"] = json.dumps(head | form, indent=2) + "\n"
    return texts


if __name__ == "__main__":
    for name, text in files().items():
        Path(__file__).with_name(name).write_text(text)
