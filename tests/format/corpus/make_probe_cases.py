"""Writes corpus/probe. Run by hand when the format changes: python tests/format/corpus/make_probe_cases.py"""

import copy
import shutil
from pathlib import Path

import numpy as np
from probe_format import jsonio
from probe_format.journal.assembly import assemble
from probe_format.schema.tensor_objects import tensors
from probe_format.tensors.checksum import crc32_hex
from probe_format.tensors.files import npy_bytes, pt_bytes, write_parts
from probe_format.tensors.stats import stats_json, stats_of
from probe_format.write import recover
from probe_format.write.rank_writer import RankWriter
from probe_format.write.summary import Summary

HERE = Path(__file__).parent / "probe"
FILES = "dump_tensor_data"
HEADER = {
    "task": "tensor",
    "level": "mix",
    "framework": "pytorch",
    "dump_data_dir": "dump_tensor_data",
    "format_version": "1.0",
    "tool": "probe-torch 0.1.0",
    "checksum": "crc32",
}
HEAD, LAST = "Module.head.Linear.forward.0", "Functional.linear.1.forward"
FRAMES = ["File /home/user/train.py, line 23, in forward, \n x = self.fc(x)"]


def tensor(folder, values, name):
    array = np.asarray(values, dtype=np.float32)
    parts = npy_bytes(array) if name.endswith(".npy") else pt_bytes("float32", array.shape, array.tobytes())
    write_parts(folder / FILES / name, parts)
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": list(array.shape),
        **stats_json(stats_of(array)),
        "requires_grad": False,
        "data_name": name,
        "md5": crc32_hex(array.tobytes()),
    }


def events(folder):
    def t(values, name):
        return tensor(folder, values, name)

    fc, linear = "Module.fc.Linear.forward.0", "Functional.linear.0.forward"
    x = t([[1, 2], [3, 4]], f"{fc}.input.0.pt")
    weight = t([[1, 0], [0, 1]], f"{fc}.parameters.weight.npy")
    y = t([[1, 2], [3, 4]], f"{fc}.output.0.pt")
    grad = t([[1, 1], [1, 1]], "Module.fc.Linear.backward.0.input.0.pt")
    yield {"k": "frames", "i": 0, "f": FRAMES}
    yield {"k": "enter", "n": fc, "s": 0, "u": None, "a": [x], "w": {}, "p": {"weight": weight}}
    yield {"k": "enter", "n": linear, "s": 0, "u": fc, "a": [x, weight, None], "w": {}}
    yield {"k": "exit", "n": linear, "o": [y], "g": [1, 3]}
    yield {"k": "exit", "n": fc, "o": [y], "g": [1, 1]}
    log, bad = "Torch.log.0.forward", t([-1.0, np.inf, np.nan], "Torch.log.0.forward.input.0.pt")
    args = [bad, {"type": "int", "value": 2**70}, {"type": "slice", "value": [1, None, 2]}]
    yield {
        "k": "enter",
        "n": log,
        "s": 0,
        "u": None,
        "a": args,
        "w": {"base": {"type": "float", "value": "NaN"}},
    }
    yield {"k": "exit", "n": log, "e": "ValueError: no logarithm today"}
    yield {"k": "redo", "n": fc, "a": [x], "w": {}}
    yield {"k": "redone", "n": fc, "o": [y]}
    back = "Module.fc.Linear.backward.0"
    yield {"k": "back", "n": back, "u": None, "t": 1, "i": [[[0], grad]]}
    yield {"k": "back", "n": "Functional.linear.0.backward", "u": back, "t": 1, "o": [[[1], grad]]}
    yield {"k": "pgrad", "n": "Module.fc.Linear.parameters_grad", "q": "weight", "v": grad}
    yield {"k": "back", "n": back, "u": None, "t": 1, "o": [[[0], grad]]}
    yield {"k": "back", "n": back, "u": None, "t": 2, "i": [[[0], grad]]}
    yield {"k": "fault", "w": "Torch.sin.0.forward", "m": "RuntimeError: no statistics for this tensor"}
    counts = {"seen": {"calls": 4}, "recorded": {"calls": 3}, "failed": {"Torch.sin.0.forward": 1}}
    not_seen = [{"what": "torch.compile region of Net", "why": "compiled code makes no Python calls"}]
    unmatched = [{"filter": "list", "value": "lineer", "nearest": ["linear"]}]
    yield {"k": "tally", "d": {"counts": counts, "not_seen": not_seen, "unmatched": unmatched}}
    yield {"k": "enter", "n": HEAD, "s": 0, "u": None, "a": [y], "w": {}}
    yield {"k": "enter", "n": LAST, "s": 0, "u": HEAD, "a": [y], "w": {}}


DEBUG = {**HEADER, "level": "debug", "tool": "probe-save 0.1.0"}


def saved(folder):
    """The events of level debug: values of every kind, gradients once, twice and never."""
    h = tensor(folder, [[1, 2], [3, 4]], "h.0.debug.a.pt")
    plain = tensor(folder, [1, np.nan], "x_y~2b9d05dd6f4ab5a8b6c1.npy")
    plain = {key: value for key, value in plain.items() if key != "requires_grad"}
    gradient = tensor(folder, [[1, 1], [1, 1]], "h_grad.0.debug.a.pt")
    value = {"a": h, "n": [{"type": "int", "value": 3}, None]}
    yield {"k": "save", "n": "h.0.debug", "v": value, "g": ["h_grad.0.debug", {"a": None, "n": [None, None]}]}
    yield {
        "k": "save",
        "n": "loss.0.debug",
        "v": {"type": "float", "value": "NaN"},
        "g": ["loss_grad.0.debug", None],
    }
    yield {"k": "grad", "n": "h_grad.0.debug", "p": ["a"], "v": gradient}
    yield {"k": "save", "n": "x/y.0.debug", "v": {**plain, "type": "numpy.ndarray", "dtype": "float32"}}
    yield {"k": "grad", "n": "h_grad.0.debug", "p": ["a"], "v": gradient}
    yield {"k": "save", "n": "loss.1.debug", "v": {"type": "str", "value": "end"}}


def debug_case(name, *, end):
    """The same as `case`, at level debug."""
    folder = HERE / name / "step0" / "rank"
    shutil.rmtree(HERE / name, ignore_errors=True)
    writer = RankWriter(folder, DEBUG)
    for event in list(saved(folder)):
        writer.append(event)
    if end:
        writer.finish(final=True)
    writer.close()
    return folder


def summary_of(data):
    summary = Summary()
    for name, record in data.items():
        for path, tensor in tensors(jsonio.loads(jsonio.dumps(record))):
            if isinstance(jsonio.number(tensor["Norm"]), float):
                summary.add(name, ".".join(map(str, path)), tensor)
    return summary.json()


def case(name, *, end):
    """A rank folder; ``end``: the step ends (True), is stopped (False), or the process dies (None)."""
    folder = HERE / name / "step0" / "rank"
    shutil.rmtree(HERE / name, ignore_errors=True)
    writer = RankWriter(folder, HEADER)
    (folder / FILES).mkdir(exist_ok=True)
    happened = list(events(folder))
    if end is not None:
        happened += [{"k": "exit", "n": name, "o": [None], "g": [1, 1]} for name in (LAST, HEAD)]
    (tally,) = (event["d"] for event in happened if event["k"] == "tally")
    tally["summary"] = summary_of(assemble(copy.deepcopy(happened)).data)
    for event in happened:
        writer.append(event)
    if end is not None:
        writer.finish(final=end)
    writer.close()
    return folder


def change(path, at, to):
    raw = bytearray(path.read_bytes())
    raw[at : at + len(to)] = to
    path.write_bytes(bytes(raw))


def kill(name):
    folder = case(name, end=None)
    journal = folder / "records.journal"
    journal.write_bytes(journal.read_bytes()[:-20])
    return folder


if __name__ == "__main__":
    case("complete", end=True)
    case("open", end=False)
    debug_case("debug_complete", end=True)
    journal = debug_case("debug_torn", end=None) / "records.journal"
    journal.write_bytes(journal.read_bytes()[:-20])
    kill("torn")
    recover(kill("recovered"))
    journal = kill("damaged_journal") / "records.journal"
    change(journal, journal.read_bytes().index(b"Torch.log"), b"Torch.lag")
    dump = case("damaged_json", end=True) / "dump.json"
    change(dump, dump.read_bytes().index(b'"Max":4.0') + 6, b"5")
    saved = case("damaged_file", end=True) / FILES / "Module.fc.Linear.forward.0.input.0.pt"
    change(saved, saved.read_bytes().index(np.float32(3).tobytes() + np.float32(4).tobytes()), b"\x01")
