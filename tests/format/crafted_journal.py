"""Journals made by hand, as a damaged or a foreign file could be."""

import json
import struct
import zlib

from probe_format.journal import MAGIC
from probe_format.journal.version1 import MAGIC_1

HEADER = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
HEAD = {"k": "head", "header": {**HEADER, "format_version": "1.0", "tool": "a hand"}}


def frame(event):
    raw = event if isinstance(event, bytes) else json.dumps(event, separators=(",", ":")).encode()
    return struct.pack("<II", len(raw), zlib.crc32(raw)) + raw


def journal(tmp_path, *events, magic=MAGIC_1):
    rank = tmp_path / "step0" / "rank"
    rank.mkdir(parents=True, exist_ok=True)
    (rank / "records.journal").write_bytes(magic + b"".join(map(frame, (HEAD, *events))))
    return rank


def journal_2(tmp_path, *events):
    """A journal of version 2, of events of the form (head, value, ...)."""
    lines = [[json.dumps(head, separators=(",", ":")).encode(), *values] for head, *values in events]
    return journal(tmp_path, *map(b"\n".join, lines), magic=MAGIC)
