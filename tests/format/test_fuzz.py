"""Every reader on files that were changed at random: only errors of our own, and nothing outside of the folder.

The examples are the same in each run (derandomized); PROBE_SOAK=1 draws many more. What costs time or memory is in the
test_*_crafted files, what each command makes of damage, and of a configuration, in tests/soak/test_mutants.py.
"""

import contextlib
import json
import os
import shutil
import sys

import pytest
from changed_json import changed, places
from corpus_cases import copied, rewrite
from crafted_journal import frame, journal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from probe_format.cli.show import Shown, heading, summary, tree
from probe_format.errors import FormatError, ProbeError
from probe_format.journal import MAGIC
from probe_format.journal.places import FRAME
from probe_format.read.dump import open as open_dump
from probe_format.read.verify import verify
from probe_format.tensors import load_npy, load_pt
from probe_format.write import recover

pytestmark = pytest.mark.slow
FIXED = settings(
    max_examples=600 if os.environ.get("PROBE_SOAK") else 16,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
DOCUMENTS = {
    "dump.json": "complete",
    "stack.json": "recovered",
    "construct.json": "open",
    "report.json": "complete",
    "debug.json": "debug_complete",
    "records.journal": "torn",
}

_opened = None  # the paths that were opened or changed, while somebody wants to know


def _hook(event, arguments):
    if _opened is not None and event in (
        "open",
        "os.remove",
        "os.rename",
        "os.mkdir",
        "os.rmdir",
        "os.link",
        "os.listdir",
    ):
        _opened.extend(path for path in arguments[:2] if isinstance(path, str | bytes | os.PathLike))


sys.addaudithook(_hook)


@contextlib.contextmanager
def only_in(folder):
    """Whatever is opened or changed in the block lies in the folder, or belongs to Python and its packages."""
    global _opened
    _opened = []
    try:
        yield
    finally:
        seen, _opened = _opened, None
    own = (str(folder), sys.prefix, sys.base_prefix, *(path for path in sys.path if path))
    outside = [path for path in map(os.fsdecode, seen) if os.path.isabs(path) and not path.startswith(own)]
    assert [path for path in outside if not path.startswith(("/proc/", "/sys/", "/dev/null"))] == []


def read_everything(folder):
    """What the commands and a reader of the library do, as far as it goes."""
    with contextlib.suppress(ProbeError):
        for verdict in verify(folder):
            assert all(len(text) <= 1000 for text in (*verdict.problems, *verdict.notes))
    with contextlib.suppress(ProbeError):
        for rank in open_dump(folder).ranks:
            with contextlib.suppress(FormatError):
                heading(rank)
                list(summary(rank))
            for view in (Shown(), Shown(bad=True, stack=True), Shown(brief=True, depth=2)):
                with contextlib.suppress(FormatError):
                    list(tree(rank, view))
            with contextlib.suppress(ProbeError):
                for record in rank.records:
                    for tensor in record.tensors[:3]:
                        with contextlib.suppress(ProbeError):
                            tensor.load()


TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["", "..", "/", "a/b", "NaN", "\ud800", "\0", "x" * 300, "Torch.a.0.forward", "Infinity", "debug"]
    ),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    TEXTS,
    st.floats(),
    st.sampled_from([-1, 0, 1, 7, 1 << 31, 1 << 63, 10**40, -(1 << 70)]),
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(TEXTS, st.sampled_from(["type", "dtype", "shape", "value", "data_name"])),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Called for a fresh copy of a dump: its rank folder."""
    root = tmp_path_factory.mktemp("fuzz")

    def fresh(case):
        shutil.rmtree(root / "dump", ignore_errors=True)
        return copied(root, case)

    return fresh


def mutated(draw, raw):
    """Bytes with a few of them flipped, removed, repeated or replaced."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(raw) - 1, 0)))
        size = draw(st.integers(0, 30))
        kind = draw(st.sampled_from(["flip", "cut", "repeat", "insert", "end"]))
        if kind == "flip" and raw:
            raw = raw[:at] + bytes([raw[at] ^ 1 << draw(st.integers(0, 7))]) + raw[at + 1 :]
        elif kind == "cut":
            raw = raw[:at] + raw[at + size :]
        elif kind == "repeat":
            raw = raw[:at] + raw[at : at + size] * draw(st.integers(2, 50)) + raw[at:]
        elif kind == "insert":
            raw = raw[:at] + draw(st.binary(max_size=12)) + raw[at:]
        else:
            raw = raw[:at]
    return raw


@pytest.mark.parametrize("name", DOCUMENTS)
@given(data=st.data())
@FIXED
def test_bytes_of_a_document_and_any_value_at_any_place_of_it(corpus, name, data):
    folder = corpus(DOCUMENTS[name])
    raw = (folder / name).read_bytes()
    if name.endswith(".json") and data.draw(st.booleans()):
        document = json.loads(raw)
        path = data.draw(st.sampled_from(list(places(document))))
        raw = json.dumps(changed(document, path, data.draw(JSON))).encode()
    else:
        raw = mutated(data.draw, raw)
    rewrite(folder, name, raw)
    with only_in(folder.parent.parent):
        (recover_all if data.draw(st.booleans()) else read_everything)(folder.parent.parent)


KINDS = [
    *("head", "frames", "enter", "exit", "redo", "redone", "back", "over", "pgrad", "save", "grad", "fill"),
    *("stat", "file", "fault", "tally"),
]
NAMES = st.sampled_from(
    ["Torch.a.0.forward", "Torch.a.0.backward", "x.0.debug", "x_grad.0.debug", "Module.a.B.forward.0"]
)
PATHS = st.lists(st.one_of(st.integers(-2, 9), st.sampled_from([10**9, "k"])), max_size=4)
EVENTS = st.fixed_dictionaries(
    {"k": st.sampled_from(KINDS)},
    optional={
        **dict.fromkeys("aswpxreoqtvmdf", JSON),
        "n": st.one_of(NAMES, JSON),
        "u": st.one_of(NAMES, JSON),
        "i": st.one_of(st.lists(st.tuples(PATHS, JSON).map(list), max_size=3), JSON),
        "p": st.one_of(PATHS, JSON),
        "r": st.one_of(st.lists(st.tuples(st.integers(0, 3), JSON).map(list), max_size=3), JSON),
        "g": st.one_of(st.tuples(st.integers(0, 9), st.integers(0, 10**9)).map(list), JSON),
        "header": st.one_of(
            st.just({"task": "tensor", "level": "mix", "framework": "x", "deferred": True}), JSON
        ),
    },
)


def recover_all(folder):
    with contextlib.suppress(ProbeError):
        recover(folder)
        read_everything(folder)


@given(events=st.lists(EVENTS, min_size=1, max_size=12))
@FIXED
def test_any_events_in_a_journal(tmp_path_factory, events):
    folder = tmp_path_factory.mktemp("journal")
    journal(folder, *events)
    with only_in(folder):
        read_everything(folder)
        recover_all(folder)


def payloads(raw):
    """The payload of each frame of a journal."""
    at = len(MAGIC)
    while at + FRAME.size <= len(raw):
        size, _ = FRAME.unpack_from(raw, at)
        at += FRAME.size + size
        yield raw[at - size : at]


def rearranged(draw, parts):
    """A list with parts of it removed, repeated or exchanged."""
    at, other = (draw(st.integers(0, len(parts) - 1)) for _ in range(2))
    kind = draw(st.sampled_from(["cut", "repeat", "exchange"]))
    if kind == "cut":
        return parts[:at] + parts[at + 1 :]
    if kind == "repeat":
        return [*parts[:at], *parts[at : at + 1] * draw(st.integers(2, 5)), *parts[other:]]
    parts = list(parts)
    parts[at], parts[other] = parts[other], parts[at]
    return parts


@pytest.mark.parametrize("case", ["torn", "debug_torn", "torn_lost", "torn_holes_filled", "v1_torn"])
@given(data=st.data())
@FIXED
def test_frames_of_a_journal(corpus, case, data):
    """Frames and lines elsewhere, and bytes in them changed, all with a checksum that is right."""
    folder = corpus(case)
    path = folder / "records.journal"
    magic, found = path.read_bytes()[: len(MAGIC)], list(payloads(path.read_bytes()))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(found) - 1))
        kind = data.draw(st.sampled_from(["frames", "lines", "bytes", "holes", "head"]))
        if kind == "frames":
            found = rearranged(data.draw, found) or found
        elif kind == "lines":
            found[at] = b"\n".join(rearranged(data.draw, found[at].split(b"\n")))
        elif kind == "bytes":
            found[at] = mutated(data.draw, found[at])
        elif kind == "head":
            head, *values = found[at].split(b"\n")
            with contextlib.suppress(ValueError):  # it was changed before
                head = json.loads(head)
                path_there = data.draw(st.sampled_from(list(places(head))))
                head = json.dumps(changed(head, path_there, data.draw(JSON)), separators=(",", ":")).encode()
                found[at] = b"\n".join([head, *values])
        else:
            where = data.draw(st.integers(0, len(found[at])))
            hole = data.draw(
                st.sampled_from([b"\x1a", b"\x1an1\x1a", b"\x1az1\x1a", b"\x1af99999999999\x1a"])
            )
            found[at] = found[at][:where] + hole + found[at][where:]
    path.write_bytes(magic + b"".join(map(frame, found)))
    with only_in(folder.parent.parent):
        (recover_all if data.draw(st.booleans()) else read_everything)(folder.parent.parent)


@pytest.mark.parametrize(("suffix", "loader"), [(".npy", load_npy), (".pt", load_pt)])
@given(data=st.data())
@FIXED
def test_bytes_of_a_tensor_file(corpus, suffix, loader, data):
    if suffix == ".pt":
        pytest.importorskip("torch")
    folder = corpus("complete")
    path = next(path for path in sorted((folder / "dump_tensor_data").iterdir()) if path.suffix == suffix)
    path.write_bytes(mutated(data.draw, path.read_bytes()))
    with only_in(folder.parent.parent):
        with contextlib.suppress(FormatError):
            loader(path)
        read_everything(folder)
