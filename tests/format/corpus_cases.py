"""The dumps of the corpus, copies of them that may be changed, and small ones made by hand."""

import json
import shutil
import zlib
from pathlib import Path

import probe_format

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


def dumped(rank, data, *, task="statistics", construct=None, stack=None, framework="pytorch", **more):
    """A dump of these records in the folder of a rank: its dump path."""
    (rank / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
    header = {"task": task, "level": "mix", "framework": framework, "dump_data_dir": None, **more}
    for name, content in (("dump", {**header, "data": data}), ("construct", construct), ("stack", stack)):
        if content is not None:
            (rank / f"{name}.json").write_text(json.dumps(content))
    return rank.parents[1]


def tensor_in(rank, said):
    """The one tensor of a dump in the folder of a rank."""
    dumped(rank, {"Torch.a.0.forward": {"input_args": [], "input_kwargs": {}, "output": [said]}})
    ((tensor,),) = [record.tensors for record in probe_format.open(rank).ranks[0].records]
    return tensor
