"""Every reader of kernel dumps on damaged and crafted input: only our own errors, bounded time and memory.

Each reader gets true examples with bytes changed, cut, doubled or swapped in, and texts built from the words of its
format. What it gives (rows, operators, values, problems) may be anything; what it raises may not. The seeds are fixed.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import resource
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from binfiles import block, made, number, shape, varint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from probe_format.errors import DamagedError, FormatError, ProbeError, UsageError
from probe_kernel import BACKENDS, cli, load_settings
from probe_kernel.convert.conversion import Conversion, bin_files, convert_file
from probe_kernel.files.bin_file import open_bin
from probe_kernel.files.dump_data import parse_dump_data
from probe_kernel.files.tensor_layouts import TARGETS
from probe_kernel.graph.ir_text import parse_ir, read_ir
from probe_kernel.read.dump import read_history, read_order
from probe_kernel.read.file_name import is_file_name, parse_file_name
from probe_kernel.read.listing import list_files, read_mapping
from probe_kernel.read.overflow import opdebug_json, read_overflow
from probe_kernel.read.statistic_csv import read_table
from probe_kernel.trace.find_line import parse_line
from trees import CONV, TIME, conv

DATA = Path(__file__).parent / "data"
BINS = [p.read_bytes() for p in sorted((DATA / "bin").iterdir()) if p.is_file()]
NPYS = [p.read_bytes() for p in sorted(DATA.glob("loop/rank_0/Net/*/*/*.npy"))][:12]
IRS = [p.read_bytes() for p in sorted(DATA.glob("loop/rank_0/graphs/*.ir"))]
CONTROLS = [p.read_bytes() for p in sorted((DATA / "control").iterdir())]
TABLE = (
    b"Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,L2Norm Value\n"
    b'Sub,Default_Sub-op0,0,0,1733905446819790,input,0,4,float32,"()",3,3,3,\n'
    b'Cast,Default_Cast-op0,0,0,1733905446824053,input,1,8,int64,"(2,3)",30,-1.5,inf,\n'
    b'Cast,Default_Cast-op0,0,0,1733905446824054,output,0,8,float32,"(2,)",null,null,null,\n'
)
MAPPING = b"612177812.npy,Op.Default_x.0.0.17.output.0.DefaultFormat.Float32.npy\n12,Op.y.1.2.3\n"
ORDER = b"NodeExecutionOrder-FullNameWithScope\nDefault/Add-op0\nDefault/Sub-op1\n"

pytestmark = pytest.mark.slow
SOAK = 5 if os.environ.get("PROBE_SOAK") else 1
fuzzed = settings(
    derandomize=True,
    max_examples=100 * SOAK,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
few = settings(fuzzed, max_examples=20 * SOAK)


@st.composite
def damaged(draw: st.DrawFn, examples: list[bytes], words: list[bytes]) -> bytes:
    """A true example with up to six changes."""
    data = bytearray(draw(st.sampled_from(examples)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["flip", "cut", "drop", "insert", "word", "double", "zero", "end"]))
        some = draw(st.integers(1, 40))
        if how == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del data[at:]
        elif how == "drop":
            del data[at : at + some]
        elif how == "insert":
            data[at:at] = draw(st.binary(max_size=some))
        elif how == "word":
            data[at:at] = draw(st.sampled_from(words))
        elif how == "double":
            data[at:at] = data[at : at + some]
        elif how == "zero":
            data[at : at + some] = bytes(some)
        else:
            data += draw(st.binary(max_size=some))
    return bytes(data)


@contextlib.contextmanager
def bounded(size: int, most: int = 64 << 20) -> Iterator[None]:
    """No more memory than some times the input, and no more than a few seconds of this processor."""
    tracemalloc.start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    try:
        yield
        used = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most + 200 * size
    assert used < 20, "a reader that takes this long for a small file takes for ever for a large one"


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder beside a file that nobody may touch."""
    with tempfile.TemporaryDirectory() as top:
        (Path(top) / "precious").write_text("precious")
        inner = Path(top) / "inner"
        inner.mkdir()
        yield inner
        assert sorted(p.name for p in Path(top).iterdir()) == ["inner", "precious"]
        assert (Path(top) / "precious").read_text() == "precious"


def read(data: bytes, reader: Callable[[Path], Any], name: str = "x") -> Any:
    """What the reader gives; None where it refuses in our own words."""
    with folder() as inner:
        path = inner / name
        path.write_bytes(data)
        with bounded(len(data)):
            try:
                return reader(path)
            except ProbeError as error:
                assert 0 < len(str(error)) < 20_000 + 4 * len(data)
                return None


def run_commands(top: Path) -> None:
    """The whole way: show, check, statistics and export of the dump ``in``."""
    for command, *out in (["check"], ["show"], ["statistics", "s"], ["export", "e"]):
        assert cli.main([command, str(top / "in"), *(f"-o{top / name}" for name in out)]) in (0, 1, 3)
    for found in (top / "e").rglob("*.json"):
        json.loads(found.read_bytes())


# -- statistic.csv -----------------------------------------------------------------------------------------

CSV_WORDS = [
    b",", b'"', b"\n", b"\r\n", b"(", b")", b'"(2,3)"', b"null", b"nan", b"1e999", b"-1", b"9" * 5000, b"x" * 200_000,
    b"," * 5000, b"\0", b"\xef\xbb\xbf", b"\xff", b"Op Type,IO,Slot,Data Type,Shape\n", b"input", b"output,99999",
    "\u0661".encode(), b"\x1b[2J", b'"\n"', b"../../x", b"(" + b"1," * 500 + b")",
]  # fmt: skip


@fuzzed
@given(damaged([TABLE], CSV_WORDS))
def test_statistic_csv(data: bytes) -> None:
    table = read(data, read_table, "statistic.csv")
    for row in table.rows:
        assert row.io in ("input", "output") and 0 <= row.slot < 100_000
        assert all(v is None or isinstance(v, int | float | str) for v in row.values.values())
        for key in ("max", "min", "l2norm"):
            assert not isinstance(row.values.get(key), str)
    assert all(isinstance(problem, str) and len(problem) < 500 for problem in table.problems)


@fuzzed
@given(damaged([b"Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value\nInput,1,24,FLOAT,ND,2x3,4.5\n"],
               CSV_WORDS))  # fmt: skip
def test_csv_of_a_device(data: bytes) -> None:
    owner = parse_file_name("Add.Default_Add-op1.5.6.7.csv")
    for row in read(data, lambda path: read_table(path, owner)).rows:
        assert row.op_name  # its own, where a column says so, else the file's


@few
@given(damaged([TABLE], CSV_WORDS))
def test_a_dump_with_such_a_table(data: bytes) -> None:
    def walk(path: Path) -> None:
        conv(path.parent / "in/rank_0/Net/0/0")
        (path.parent / "in/rank_0/Net/0/0/statistic.csv").write_bytes(data)
        run_commands(path.parent)

    read(b"", walk)


# -- mapping.csv and the names of files --------------------------------------------------------------------

NAME_WORDS = [
    b"../", b"/", b"..", b"\0", b",", b"\n", b"\r", b"\xff", b"x" * 300, b"y" * 5000, b"Op.x.1.2.3", b".npy",
    b".input.0", b"12", b"/etc/passwd", b"1" * 32, b".99999.", b"\\", b"\xef\xbb\xbf", b"6" * 400,
]  # fmt: skip


@few
@given(damaged([MAPPING], NAME_WORDS))
def test_mapping_csv(data: bytes) -> None:
    def reader(path: Path) -> None:
        here = path.parent
        for name in ("12", "612177812.npy", "1" * 32):
            (here / name).write_bytes(made(1, 2, (1,), bytes(4)))
        names, _ = read_mapping(here)
        assert all(file in os.listdir(here) for file in names)
        list_files(here)
        bin_files(here)
        out = here.parent / "inner/out"
        for source in (here, here / "12"):
            cli.main(["convert", str(source), "-o", str(out)])
        for found in out.rglob("*") if out.exists() else ():
            assert found.parent == out and found.is_file()

    read(data, reader, "mapping.csv")


@fuzzed
@given(damaged([f"Conv2D.{CONV}.2.7.{TIME}.input.0.NC1HWC0.float16.npy".encode(), b"Op.x.1.2.3",
                b"Op.x.1.2.3.output.1.2x3.npy", b"Op.x.1.2.3.input.0.6.float32.ND.bin"], NAME_WORDS))  # fmt: skip
def test_names_of_files(data: bytes) -> None:
    text = os.fsdecode(data)
    if not is_file_name(text):
        with pytest.raises(FormatError):
            parse_file_name(text)
        return
    assert str(parse_file_name(text)) == text
    assert "/" not in text and "\0" not in text


# -- IR ----------------------------------------------------------------------------------------------------

IR_WORDS = [
    b"(", b")", b"{", b"}", b"[", b"]", b"<", b">", b'"', b" = ", b"%1", b"->", b") -> (", b"\n",
    b"# In file x.py:3/y/",
    b"# In file x.py(3)/y/\n", b"      : (", b": (<Tensor[Float32], (2, 3)>) -> (<Tensor[Float32], (2, 3)>)\n",
    b"(" * 2000, b"%1(a) = " * 300, b"subgraph", b"Return(", b"9" * 5000, b"\xff", b"\0", b") -> (" * 500,
    b"# In file " + b"x:1/" * 300, b'unique_id: "1"', b"  %9(CNode) = Add(%1, %2) {x}\n",
]  # fmt: skip


@fuzzed
@given(damaged(IRS, IR_WORDS))
def test_ir(data: bytes) -> None:
    graph = read(data, read_ir)
    if graph is None:
        return
    for operator in graph.operators:
        graph.shared(operator)
        graph.scope_of(operator)
    for file in graph.files:
        graph.at(file, 1)


@fuzzed
@given(st.lists(st.sampled_from([w.decode("latin1") for w in IR_WORDS]), max_size=30))
def test_ir_of_its_words_alone(words: list[str]) -> None:
    text = "".join(words)
    with bounded(len(text)):
        parse_ir(io.StringIO(text))


@pytest.mark.parametrize(
    "line",
    [
        "(" * 200_000,
        "%1 = A(" + "(" * 200_000,
        "%1 = A(x)\n: (" + ") -> (" * 50_000,
        "%1 = A(x)\n: (" + "<" * 200_000,
        "%1 = A(x)\n: (<Tensor[Float32], (" + "1, " * 100_000 + ")>) -> (<F, NoShape>)",
        "%1 = A(" + ", " * 200_000 + ")",
        "%1(" * 100_000 + ") = A(x)",
        "% = " * 100_000,
        "%1 = A(x)\n" + "# In file " + "a(1)/" * 100_000,
        "%1 = A(x)\n" + "continued " * 5 + "\n" * 200_000,
        "%1 = A(\n" + "line\n" * 100_000,
        "%1 = A(x)\n: (" + "Default/" * 50_000,
        "%1 = A(x)\n# " + " " * 200_000 + "x",
    ],
    ids=range(13),
)
def test_no_line_takes_for_ever(line: str) -> None:
    """Half a megabyte each: what is quadratic takes minutes."""
    with bounded(len(line)):
        parse_ir(io.StringIO(line))


@pytest.mark.parametrize("where", ["x.py:{}/y/", "x.py({})/y/", "x.py:3~{}, 1~2/y/", "x.py:3, 1~{}/y/"])
def test_a_line_number_without_end(where: str) -> None:
    """Found with other seeds: int() refuses thousands of digits by a ValueError."""
    graph = parse_ir(io.StringIO("%1 = A(x)\n# In file " + where.format("9" * 5000)))
    assert len(graph.operators) == 1 and graph.operators[0].frames[0].line < 10**9
    with pytest.raises(UsageError):
        parse_line("x.py:" + "9" * 5000)


def test_a_real_graph_stays_whole() -> None:
    text = gzip.decompress((DATA / "alexnet-2.10.ir.gz").read_bytes()).decode()
    assert len(parse_ir(io.StringIO(text)).operators) > 40 and not parse_ir(io.StringIO(text)).problems


# -- bin files and their headers ---------------------------------------------------------------------------

BIN_WORDS = [
    varint(1 << 63), varint((1 << 64) - 1), number(1, 1 << 63), number(5, 1 << 62), number(6, (1 << 64) - 1),
    shape(3, (1 << 40, 1 << 40)), shape(3, (0, 1 << 62)), shape(3, tuple(range(70))), block(3, b""), block(4, b"\xff"),
    b"\x5a" * 8, bytes(8), b"\xff" * 10, b"\x80" * 200, block(8, number(3, 1 << 50)), block(6, b"../../evil"),
    block(6, b"\0\n" * 10), number(1, 33), number(2, 29), b"\x0b", b"\x08" * 500,
]  # fmt: skip


def whole(path: Path) -> None:
    try:
        file = open_bin(path)
    except ProbeError:
        return
    for section in file.sections:
        try:
            section.load()
        except ProbeError:
            continue
    out = path.parent / "out"
    out.mkdir()
    for kind in ("npy", "bin", "msnpy"):
        convert_file(path, out, Conversion(kind))  # type: ignore[arg-type]
        convert_file(path, out, Conversion(kind, "NCHW"))  # type: ignore[arg-type]
    assert all(p.parent == out for p in out.rglob("*"))


@fuzzed
@given(damaged(BINS, BIN_WORDS))
def test_bin_files(data: bytes) -> None:
    read(data, whole, "Op.Default_x_Op-op1.1.2.3")


@fuzzed
@given(st.lists(st.sampled_from(BIN_WORDS) | st.binary(max_size=12), max_size=12), st.booleans(),
       st.binary(max_size=64))  # fmt: skip
def test_headers_of_their_fields(words: list[bytes], framed: bool, rest: bytes) -> None:
    header = b"".join(words)
    with bounded(len(header)), contextlib.suppress(DamagedError):
        parse_dump_data(memoryview(header))
    data = len(header).to_bytes(8, "little") + header + rest if framed else header + rest
    read(data, whole, "Op.Default_x_Op-op1.1.2.3")


@few
@given(
    st.integers(0, 40), st.integers(0, 45), st.lists(st.integers(0, 20), max_size=7),
    st.lists(st.integers(0, 40), max_size=6), st.sampled_from(TARGETS), st.binary(max_size=300),
)  # fmt: skip
def test_any_dtype_layout_and_shape(
    dtype: int, layout: int, dims: list[int], original: list[int], target: str, raw: bytes
) -> None:
    def reader(path: Path) -> None:
        out = path.parent / "out"
        out.mkdir()
        convert_file(path, out, Conversion("npy", target, ()))

    read(made(dtype, layout, tuple(dims), raw, tuple(original)), reader, "Op.x.1.2.3")


@fuzzed
@given(st.binary(max_size=2100) | st.binary(min_size=2048, max_size=2048) | st.binary(max_size=200).map(
    lambda b: b"ZZZZ" + b))  # fmt: skip
def test_overflow_records(raw: bytes) -> None:
    with bounded(len(raw)), contextlib.suppress(FormatError, DamagedError):
        json.dumps(opdebug_json(np.frombuffer(raw, np.uint8)))
    name = parse_file_name("Opdebug.Node_OpDebug.1.2.3")
    read(made(4, 2, (len(raw),), raw), lambda path: read_overflow(path, name).tasks)


@fuzzed
@given(damaged([b'{"AI Core": {"task_id": 2, "stream_id": 7, "status": 14}}'],
               [b"[", b"{", b"null", b'"', b"[" * 3000, b"1e999", b"9" * 5000, b"\xff", b'{"data": [1]}',
                b"[1]"]))  # fmt: skip
def test_overflow_json(data: bytes) -> None:
    name = parse_file_name("Opdebug.Node_OpDebug.1.2.3.output.0.json")
    read(data, lambda path: read_overflow(path, name).tasks)


# -- npy ---------------------------------------------------------------------------------------------------

NPY_WORDS = [
    b"'<E2'", b"'|O'", b"'<f8'", b"'<U99999'", b"(1 << 60,)", b"(99999999999999999999,)", b"()", b"(-1,)", b"True",
    b"(" * 300, b"[" * 5000, b"-" * 5000, b"9" * 5000, b"{'descr': ", b"[('a', '<f8')]", b"\x93NUMPY\x01\x00",
    b"\0" * 20, b"'<M8[ns]'", b"'|V0'", b"1e999", b"\xff\xff\xff\xff", b"'f8, (3,)i4'", b"'|S0'", b"', '",
]  # fmt: skip


@few
@given(damaged(NPYS, NPY_WORDS))
def test_a_dump_with_such_a_tensor(data: bytes) -> None:
    def walk(path: Path) -> None:
        inside = path.parent / "in/rank_0/Net/0/0"
        conv(inside)
        (inside / f"Op.Default_x_Op-op1.2.7.{TIME}.input.0.ND.BFloat16.npy").write_bytes(data)
        run_commands(path.parent)

    read(b"", walk)


# -- control files, orders, metadata -----------------------------------------------------------------------

JSON_WORDS = [
    b"{", b"}", b"[", b"]", b",", b'"', b"null", b"true", b"NaN", b"1e999", b"9" * 5000, b"[" * 5000, b'"\\ud800"',
    b"\\", b'"path": 3,', b'"kernels": ["name-regex((a*)*)"],', b'"iteration": "1-2",', b'"op_debug_mode": 4,',
    b'"kernels": ["name-regex((a{1,99999999999}))"],', b'"dump_mode": 1,', b'"support_device": [[]],', b"-", b"\xff",
    b'"x": {},', b"\0",
]  # fmt: skip


@fuzzed
@given(damaged(CONTROLS, JSON_WORDS), st.sampled_from(sorted(BACKENDS)))
def test_control_files(data: bytes, backend: str) -> None:
    found = read(data, lambda path: load_settings(path, backend, {}))
    if found is not None:
        assert found.description.net_name and all(isinstance(note, str) for note in found.notes)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["all", "0|5-8", "tensor", "full", "npy", "host", "conv", "name-regex(.+)", "/d", "max"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
CONTROL_KEYS = sorted({key for b in BACKENDS.values() for key in (*b.common, *b.e2e)})


@fuzzed
@given(
    st.dictionaries(st.sampled_from(CONTROL_KEYS), VALUES), st.sampled_from(sorted(BACKENDS)), st.booleans()
)
def test_control_files_of_any_values(keys: dict[str, Any], backend: str, whole_file: bool) -> None:
    document = json.loads(CONTROLS[0])
    for key, value in keys.items():
        document["e2e_dump_settings" if key in BACKENDS["ascend-o0o1"].e2e else "common_dump_settings"][
            key
        ] = value
    if not whole_file:
        document = {"common_dump_settings": keys}
    read(json.dumps(document).encode(), lambda path: load_settings(path, backend, {}))


@fuzzed
@given(damaged([ORDER], [b"\n", b"\0", b"\xff", b"x" * 9000, b"\r", b"\xef\xbb\xbf"]))
def test_execution_orders(data: bytes) -> None:
    read(data, read_order)


@fuzzed
@given(damaged([b"0\n1\n2\n"], [b"-1", b"x", b"9" * 5000, b"\n", "\u0661".encode(), b"1_0", b"\0"]))
def test_histories(data: bytes) -> None:
    read(data, read_history)


@few
@given(damaged([b'{"a": 1}'], JSON_WORDS), damaged(IRS[:2], IR_WORDS), damaged([ORDER], NAME_WORDS))
def test_a_rank_with_such_files(metadata: bytes, graph: bytes, order: bytes) -> None:
    def walk(path: Path) -> None:
        rank = path.parent / "in/rank_0"
        conv(rank / "Net/0/0")
        for name, data in (
            (".dump_metadata/config.json", metadata),
            ("graphs/ms_output_trace_code_graph_0.ir", graph),
            ("execution_order/ms_execution_order_graph_0.csv", order),
            ("execution_order/ms_global_execution_order_graph_0.csv", order),
            (f"Net/0/0/Conv2D.{CONV}.json", metadata),
        ):
            (rank / name).parent.mkdir(parents=True, exist_ok=True)
            (rank / name).write_bytes(data)
        assert cli.main(["find", "misc.py:27", str(path.parent / "in")]) in (0, 1, 3)
        run_commands(path.parent)

    read(b"", walk)
