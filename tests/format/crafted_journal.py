"""Journals made by hand, as a damaged or a foreign file could be."""

import json
import struct
import zlib

from probe_format.journal.version1 import MAGIC_1

HEADER = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
HEAD = {"k": "head", "header": {**HEADER, "format_version": "1.0", "tool": "a hand"}}


def frame(event):
    raw = event if isinstance(event, bytes) else json.dumps(event, separators=(",", ":")).encode()
    return struct.pack("<II", len(raw), zlib.crc32(raw)) + raw


def journal(tmp_path, *events):
    rank = tmp_path / "step0" / "rank"
    rank.mkdir(parents=True, exist_ok=True)
    (rank / "records.journal").write_bytes(MAGIC_1 + b"".join(map(frame, (HEAD, *events))))
    return rank
