"""What a dump says of a run, without what differs between two runs that do the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["recorded"]

_OF_ONE_RUN = ("dump_data_dir", "found", "header", "started", "ended", "journal", "files")
_OTHERS = "calls of other threads "


def recorded(folder: Path) -> dict[str, Any]:
    """Return the content of each JSON file below a dump's folder."""
    found = {}
    for path in sorted(folder.rglob("step*/rank*/*.json")):
        document = json.loads(path.read_text())
        for key in _OF_ONE_RUN:
            document.pop(key, None)
        if (
            "not_seen" in document
        ):  # whether a thread beside ran during an import, as trainers have, is chance
            seen = (each for each in document["not_seen"] if not each["what"].startswith(_OTHERS))
            document["not_seen"] = [*seen]
        found[str(path.relative_to(folder))] = document
    return found
