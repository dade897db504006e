"""The dumps of the corpus, and copies of them that may be changed."""

import json
import shutil
import zlib
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
PROBE = CORPUS / "probe"
#: Dump -> what is in it.
EXPECTED = json.loads((CORPUS / "expected.json").read_text())


def copied(tmp_path, case="complete", to="dump"):
    """A copy of one of Probe's dumps: its rank folder."""
    shutil.copytree(PROBE / case, tmp_path / to)
    return tmp_path / to / "step0" / "rank"


def ranks_of(tmp_path, *cases):
    """A dump whose ranks, from 0 up, are those of other dumps."""
    for number, case in enumerate(cases):
        shutil.copytree(PROBE / case / "step0" / "rank", tmp_path / "step0" / f"rank{number}")


def rewrite(folder, name, raw):
    """Change a file and its checksum in the report, so that only what is wrong inside it can be noticed."""
    (folder / name).write_bytes(raw)
    report = folder / "report.json"
    if name != "report.json" and report.is_file():
        document = json.loads(report.read_bytes())
        document["files"][name] = {"bytes": len(raw), "crc32": f"{zlib.crc32(raw):08x}"}
        report.write_text(json.dumps(document))


def edit(folder, name, old, new):
    """Do so by putting something else in the place of a few bytes."""
    raw = (folder / name).read_bytes()
    assert old in raw
    rewrite(folder, name, raw.replace(old, new, 1))
