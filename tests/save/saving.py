"""Reading back what a test has saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import probe_format
from documents import header_keys
from jsonschema import Draft202012Validator
from probe_format.read.verify import verify

SCHEMA = Draft202012Validator(
    json.loads((Path(probe_format.__file__).parent / "schema" / "debug.schema.json").read_text())
)


def refuse(token: str) -> Any:
    raise ValueError(f"the bare token {token}")


def document(rank: Path, lost: int = 0) -> dict[str, Any]:
    """A debug.json: strict JSON that follows the schema, in a dump that `probe verify` calls complete.

    lost: how many gradients it says are lost.
    """
    content: dict[str, Any] = json.loads((rank / "debug.json").read_text(), parse_constant=refuse)
    SCHEMA.validate(content)
    assert set(content) <= header_keys(), "the keys that dump.md has"
    (verdict,) = verify(rank)
    assert verdict.state == "complete", verdict
    found = probe_format.open(rank).ranks[0].lost
    assert sum(not loss.known for losses in found.records.values() for loss in losses) == lost
    assert [note for note in verdict.notes if " lost: " in note] == ([str(found)] if found else [])
    assert not [note for note in verdict.notes if "belong to no record" in note]
    return content


def data(dump: Path, step: int = 0, rank: str = "rank") -> dict[str, Any]:
    """The records of one step."""
    found: dict[str, Any] = document(dump / f"step{step}" / rank)["data"]
    return found


def load(dump: Path, record: str, at: str | None = None, step: int = 0) -> Any:
    """The values of one saved tensor, as numpy has them."""
    (rank,) = probe_format.open(dump).step(step).ranks
    tensors = rank.records[record].tensors
    (found,) = tensors if at is None else [t for t in tensors if t.slot == at]
    return found.load()
