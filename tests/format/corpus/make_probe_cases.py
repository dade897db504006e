"""Writes corpus/probe but for its v1_*. Run by hand when the format changes: python make_probe_cases.py"""

import resource
import shutil
import zlib
from functools import partial
from pathlib import Path

import numpy as np
from probe_format import jsonio
from probe_format.journal import Fold, events, hole
from probe_format.schema.tensor_objects import tensors
from probe_format.tensors import checksum_of, entry_head, npy_bytes, pt_bytes, write_parts
from probe_format.tensors.stats import stats_json, stats_of
from probe_format.write import recover
from probe_format.write.coverage import Summary
from probe_format.write.rank_writer import RankWriter

HERE = Path(__file__).parent / "probe"
FILES = "dump_tensor_data"
HEADER = {
    "task": "tensor",
    "level": "mix",
    "framework": "pytorch",
    "dump_data_dir": FILES,
    "format_version": "1.0",
    "tool": "probe-torch 0.1.0",
    "checksum": "crc32",
}
DEBUG = {**HEADER, "level": "debug", "tool": "probe-save 0.1.0"}
FC, LINEAR, LOG = "Module.fc.Linear.forward.0", "Functional.linear.0.forward", "Torch.log.0.forward"
HEAD, LAST = "Module.head.Linear.forward.0", "Functional.linear.1.forward"
BACK, LINEAR_BACK = "Module.fc.Linear.backward.0", "Functional.linear.0.backward"
FRAMES = ["File /home/user/train.py, line 23, in forward, \n x = self.fc(x)"]


def tensor(folder, values, name):
    array = np.asarray(values, dtype=np.float32)
    parts = npy_bytes(array) if name.endswith(".npy") else pt_bytes("float32", array.shape, array.tobytes())
    crc = write_parts(folder / FILES / name, parts)
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": list(array.shape),
        **stats_json(stats_of(array)),
        "requires_grad": False,
        "data_name": name,
        "data_crc32": f"{crc:08x}",
        "md5": checksum_of(array.tobytes(), "md5"),
    }


json = jsonio.dumps


def happened(folder):
    """The events of a step of every kind of record, up to the last two calls, which have not returned."""
    t = partial(tensor, folder)
    x = t([[1, 2], [3, 4]], f"{FC}.input.0.pt")
    weight = t([[1, 0], [0, 1]], f"{FC}.parameters.weight.npy")
    y = json([t([[1, 2], [3, 4]], f"{FC}.output.0.pt")])
    grad = json(t([[1, 1], [1, 1]], f"{BACK}.input.0.pt"))
    log = t([-1.0, np.inf, np.nan], f"{LOG}.input.0.pt")
    yield events.frames(0, FRAMES)
    given = json([x]), b"{}", json({"weight": weight})
    yield events.enter(FC, None, "awp", given, stack=0)
    yield events.enter(LINEAR, FC, "aw", (json([x, weight, None]), b"{}"), stack=0)
    yield events.exit(LINEAR, output=y)
    yield events.exit(FC, output=y)
    arguments = json([log, {"type": "int", "value": 2**70}, {"type": "slice", "value": [1, None, 2]}])
    keywords = json({"base": {"type": "float", "value": "NaN"}})
    yield events.enter(LOG, None, "aw", (arguments, keywords), stack=0)
    yield events.exit(LOG, raised="ValueError: no logarithm today")
    yield events.redo(FC, json([x]), b"{}")
    yield events.redone(FC, output=y)
    gradient = partial(events.back, BACK, parent=None, form=(1, 1), values=[grad])
    yield gradient(0, slots=[("i", 0)], waiting=[("o", 0)])
    yield events.back(LINEAR_BACK, 0, BACK, form=(1, 3), slots=[("o", 1)], values=[grad])
    yield events.pgrad("Module.fc.Linear.parameters_grad", "weight", grad)
    yield gradient(0, slots=[("o", 0)])
    yield gradient(1, slots=[("i", 0)])
    yield events.over()
    yield events.fault("Torch.sin.0.forward", "RuntimeError: no statistics for this tensor")
    counts = {"seen": {"calls": 4}, "recorded": {"calls": 3}, "failed": {"Torch.sin.0.forward": 1}}
    not_seen = [{"what": "torch.compile region of Net", "why": "compiled code makes no Python calls"}]
    unmatched = [{"filter": "list", "value": "lineer", "nearest": ["linear"]}]
    yield events.tally({"counts": counts, "not_seen": not_seen, "unmatched": unmatched})
    yield events.enter(HEAD, None, "aw", (y, b"{}"), stack=0)
    yield events.enter(LAST, HEAD, "aw", (y, b"{}"), stack=0)


def saved(folder):
    """The events of level debug: values of every kind, gradients once, twice and never."""
    h = tensor(folder, [[1, 2], [3, 4]], "h.0.debug.a.pt")
    plain = tensor(folder, [1, np.nan], "x_y~2b9d05dd6f4ab5a8b6c1.npy")
    plain = {key: value for key, value in plain.items() if key != "requires_grad"}
    gradient = tensor(folder, [[1, 1], [1, 1]], "h_grad.0.debug.a.pt")
    again = {key: gradient[key] for key in events.LATER_PASS if key in gradient}
    value = json({"a": h, "n": [{"type": "int", "value": 3}, None]})
    yield events.save("h.0.debug", value, ("h_grad.0.debug", {"a": None, "n": [None, None]}), [("a",)])
    loss = json({"type": "float", "value": "NaN"})
    yield events.save("loss.0.debug", loss, ("loss_grad.0.debug", None))
    yield events.grad("h_grad.0.debug", ["a"], json(gradient))
    yield events.save("x/y.0.debug", json({**plain, "type": "numpy.ndarray", "dtype": "float32"}))
    yield events.grad("h_grad.0.debug", ["a"], json(again), 1)
    yield events.save("loss.1.debug", json({"type": "str", "value": "end"}))


def lost(folder):
    """The events of a process that dies between two gradients of a call, of a pass and of a saved value's parts."""
    grad = json(tensor(folder, [[1, 1], [1, 1]], f"{BACK}.input.0.pt"))
    three = partial(events.back, LINEAR_BACK, parent=BACK, form=(1, 3))
    yield three(0, slots=[("i", 0)], values=[grad], waiting=[("o", 0), ("o", 1)])
    yield three(0, slots=[("o", 0), ("o", 1)], values=[grad, grad])
    yield three(1, slots=[("o", 0)], values=[grad], waiting=[("i", 0), ("o", 1)])
    yield events.back(BACK, 0, None, form=(1, 1), slots=[("i", 0)], values=[grad], waiting=[("o", 0)])


def late(folder, *, filled):
    """The events of values with every kind of hole; those of files may hold one in a filler."""
    whole = tensor(folder, [[1, 2], [3, 4]], f"{FC}.input.0.pt")
    plain = json({key: whole[key] for key in ("type", "dtype", "shape")})[:-1]
    numbers = b"".join(b",%b:%b" % (json(key), json(whole[key])) for key in ("Max", "Min", "Mean", "Norm"))
    name = b',"data_name":%b,"data_crc32":%b' % (json(whole["data_name"]), json(whole["data_crc32"]))
    x = plain + hole("n", 1) + b',"requires_grad":false' + hole("f", 2) + b"}"
    y = plain + hole("c", 3) + b"}"
    if filled:
        yield events.fill([(1, numbers + hole("c", 4))])
    yield events.enter(FC, None, "aw", (b"[%b]" % x, b"{}"))
    yield events.exit(FC, output=b"[%b,%b]" % (x, y))
    if filled:
        yield events.fill([(2, name), (3, b',"md5":"00000000"'), (4, b"")])


def full(folder):
    """The events of a process whose disk is full after two calls."""
    happens = happened(folder)
    yield from (next(happens) for _ in range(5))
    resource.setrlimit(
        resource.RLIMIT_FSIZE, ((folder / "records.journal").stat().st_size, resource.RLIM_INFINITY)
    )
    why = f"[Errno 28] No space left on device: '/home/user/dump/step0/rank/{FILES}/x.pt'"
    yield events.fault("recording", f"it ended early: {why}")


def case(name, happening=happened, header=HEADER, *, end=None, cut=0):
    """The folder of a rank. end: the step ends (True), is stopped (False), or the process dies (None).

    cut: so many bytes are missing at the end of the journal.
    """
    folder = HERE / name / "step0" / "rank"
    shutil.rmtree(HERE / name, ignore_errors=True)
    writer = RankWriter(folder, header)
    (folder / FILES).mkdir(exist_ok=True)
    all_of_it = list(happening(folder)) if happening is not full else full(folder)
    if end is not None and happening is happened:
        all_of_it += [events.exit(LAST, output=b"[null]"), events.exit(HEAD, output=b"[null]")]
    for content, values in all_of_it:
        if content["k"] == "tally":
            content["d"]["summary"] = summary_of(all_of_it)
        writer.append((content, values))
    if end is not None:
        writer.finish(final=end)
    writer.close()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if cut:
        journal = folder / "records.journal"
        journal.write_bytes(journal.read_bytes()[:-cut])
    return folder


def summary_of(all_of_it):
    fold = Fold()
    for event in all_of_it:
        fold.take(event)
    summary = Summary()
    for name, record in jsonio.loads(b"{%b}" % b"".join(fold.pages().records)[1:]).items():
        for path, found in tensors(record):
            if isinstance(jsonio.number(found["Norm"]), float):
                summary.add(name, ".".join(map(str, path)), found)
    return summary.json()


def pack(folder):
    """Put the tensor files of a rank's folder into a pack, equal ones once."""
    raw, firsts = bytearray(), {}
    for path in sorted((folder / FILES).iterdir()):
        content = path.read_bytes()
        first = firsts.setdefault(content, path.name)
        again, crc = first != path.name, zlib.crc32(content)
        content = first.encode() if again else content
        raw += entry_head(len(raw), path.name, len(content), crc, again=again) + content
        path.unlink()
    pack = folder / FILES / "000.pack"
    pack.write_bytes(raw)
    return pack


def change(path, at, to):
    raw = bytearray(path.read_bytes())
    raw[at : at + len(to)] = to
    path.write_bytes(bytes(raw))


if __name__ == "__main__":
    case("complete", end=True)
    case("open", end=False)
    case("debug_complete", saved, DEBUG, end=True)
    case("debug_torn", saved, DEBUG, cut=20)
    case("torn", cut=20)
    recover(case("recovered", cut=20))
    journal = case("damaged_journal", cut=20) / "records.journal"
    change(journal, journal.read_bytes().index(b"Torch.log"), b"Torch.lag")
    dump = case("damaged_json", end=True) / "dump.json"
    change(dump, dump.read_bytes().index(b'"Max":4.0') + 6, b"5")
    file = case("damaged_file", end=True) / FILES / f"{FC}.input.0.pt"
    change(file, file.read_bytes().index(np.float32(3).tobytes() + np.float32(4).tobytes()), b"\x01")
    swapped = case("swapped_files", end=True) / FILES
    one, other = swapped / f"{FC}.input.0.pt", swapped / f"{BACK}.input.0.pt"
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    pack(case("packed", end=True))
    file = pack(case("packed_torn", cut=20))
    head = entry_head(file.stat().st_size, "x.pt", 1000, 0)
    file.write_bytes(file.read_bytes() + head + bytes(500))
    file = pack(case("packed_damaged", end=True))
    change(file, file.read_bytes().index(np.float32(3).tobytes() + np.float32(4).tobytes()), b"\x01")
    case("torn_lost", lost)
    recover(case("recovered_lost", lost))
    for filled in (True, False):
        case(f"torn_holes_{'filled' if filled else 'empty'}", partial(late, filled=filled))
    case("torn_full", full)
