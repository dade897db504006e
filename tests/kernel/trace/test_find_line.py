"""From a line of the script to files: matching names, and the walk itself."""

from __future__ import annotations

import gzip
import importlib
import shutil
from pathlib import Path

import numpy as np
import probe_kernel
import pytest
from attrs import evolve
from probe_format.errors import FormatError, UsageError
from probe_kernel import cli
from probe_kernel.graph.ir_text import parse_ir
from probe_kernel.graph.model import Operator, Type
from probe_kernel.read.file_name import flat, parse_file_name
from probe_kernel.trace.find_line import Line, find, parse_line
from probe_kernel.trace.match import match, stem
from trees import tensor

DATA = Path(__file__).parents[1] / "data"
LOOP = DATA / "loop"


@pytest.fixture(scope="module")
def alexnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The names that MindSpore 2.10 really gave, with values of the shapes in its graph."""
    top = tmp_path_factory.mktemp("alexnet") / "rank_0"
    with gzip.open(DATA / "alexnet-2.10.ir.gz", "rt") as file:
        text = file.read()
    (top / "graphs").mkdir(parents=True)
    (top / "graphs/ms_output_trace_code_graph_0.ir").write_text(text)
    (top / "execution_order").mkdir()
    (top / "execution_order/ms_execution_order_graph_0.csv").write_text(
        (DATA / "alexnet-order.csv").read_text()
    )
    shapes = {}
    for op in parse_ir(iter(text.splitlines(keepends=True))).operators:
        for io, types in (("input", op.device_inputs), ("output", op.device_outputs)):
            for slot, one in enumerate(types):
                # As in the graph; the number at the end of a name may be another in the file.
                shapes.setdefault((flat(op.full_name), io, slot), one)
                shapes.setdefault((stem(op.full_name), io, slot), one)
    for name in (DATA / "alexnet-files.txt").read_text().split():
        parsed = parse_file_name(name)
        one = shapes.get((parsed.op_name, parsed.io, parsed.slot)) or shapes.get(
            (stem(parsed.op_name), parsed.io, parsed.slot)
        )
        shape = one.shape if one is not None and one.shape is not None else ()
        tensor(top / "AlexNet/0/0", name, np.ones(shape, parsed.dtype.lower()))
    return top.parent


def test_every_kernel_of_a_real_dump_finds_its_operator(alexnet: Path) -> None:
    dump = probe_kernel.open(alexnet)
    (rank,) = dump.ranks
    kernels = rank.iterations[0].kernels
    found = match(rank.graphs[0].graph.operators, kernels, rank.order[0])
    names = {kernel.name for kernel in kernels if not kernel.is_parameter}
    assert set(found) == names
    assert len({id(one.operator) for one in found.values()}) == len(names) == 45
    # The five nodes that the backend made anew have another number in the files.
    other = {name: one.operator.full_name for name, one in found.items() if one.how == "order"}
    assert len(other) == 5
    assert all(name.endswith("-op0") and full.endswith("-op1") for name, full in other.items())
    assert all(stem(name) == stem(full) for name, full in other.items())


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (30, {"Conv2D": (2, 4, 16, 16), "Conv2DBackpropFilter": (4, 3, 5, 5)}),
        (35, {"Conv2D": (2, 8, 7, 7), "BiasAdd": (2, 8, 7, 7), "Conv2DBackpropInput": (2, 6, 7, 7),
              "BiasAddGrad": (8,), "Conv2DBackpropFilter": (8, 6, 3, 3)}),
        (40, {"ReLU": (2, 16), "ReluGrad": (2, 16)}),
    ],
)  # fmt: skip
def test_a_line_gives_loadable_arrays(alexnet: Path, line: int, wanted: dict[str, tuple[int, ...]]) -> None:
    hits = find(probe_kernel.open(alexnet), Line("alex.py", line))
    assert {hit.operator.op: hit.kernels[0].slot("output").load().shape for hit in hits} == wanted
    assert all(hit.frame is not None and hit.frame.line == line for hit in hits)
    assert all(hit.shared == 0 for hit in hits)


def test_lines_that_became_nothing_name_those_around(alexnet: Path) -> None:
    dump = probe_kernel.open(alexnet)
    with pytest.raises(FormatError, match=r"No operator comes from line 42.*41: x = self.fc2\(x\)"):
        find(dump, Line("alex.py", 42))
    with pytest.raises(FormatError, match=r"comes from alxe.py. Near: alex.py"):
        find(dump, Line("alxe.py", 42))


def test_without_a_graph_it_says_how_to_get_one(tmp_path: Path, alexnet: Path) -> None:
    tensor(tmp_path / "0/20240102030405/0/m/1/0", "Add.x.0.0.1.output.0.ND.float32.npy")
    dump = probe_kernel.open(tmp_path)
    with pytest.raises(FormatError, match=r"save_graphs=2.*--graphs"):
        find(dump, Line("alex.py", 30))
    # With the graph of elsewhere the operators are found, though this dump has none of their kernels.
    hits = find(dump, Line("alex.py", 30), alexnet / "rank_0/graphs")
    assert [hit.operator.op for hit in hits] == ["Conv2D", "Conv2DBackpropFilter"]
    assert all(hit.kernels == () and hit.how is None for hit in hits)


def test_loops_give_every_execution() -> None:
    hits = find(probe_kernel.open(LOOP), Line("misc.py", 27))  # x = x * 2
    (mul,) = (hit for hit in hits if hit.operator.op == "Mul")
    assert [kernel.slot("output").load().tolist() for kernel in mul.kernels] == [[2, 2], [4, 4], [8, 8]]


def test_where_the_graph_cannot_tell_lines_apart_that_is_said() -> None:
    hits = [hit for hit in find(probe_kernel.open(LOOP), Line("misc.py", 19)) if hit.operator.op == "Cast"]
    assert [hit.shared for hit in hits] == [2, 2, 2]  # three casts, one line
    # But which file is whose is certain: each has another dtype.
    assert [(hit.kernels[0].name, hit.operator.outputs[0].dtype) for hit in hits] == [
        ("Default_Cast-op0", "BFloat16"), ("Default_Cast-op1", "Float16"), ("Default_Cast-op2", "Int8"),
    ]  # fmt: skip


def test_lines_as_people_write_them() -> None:
    assert parse_line("src/train.py:175") == Line("src/train.py", 175)
    assert parse_line("C:\\x\\train.py:1") == Line("C:\\x\\train.py", 1)
    for wrong in ("train.py", "train.py:", "train.py:0", "train.py:x", ":3"):
        with pytest.raises(UsageError, match=r"Write it as train.py:175"):
            parse_line(wrong)


# matching


def operator(
    full_name: str, dtype: str = "Float32", shape: tuple[int, ...] = (2, 3), line: int = 1
) -> Operator:
    types = (Type("", dtype, shape),)
    return Operator(
        "%1", stem(full_name).rpartition("_")[2], full_name, (), types, types, types, types, line=line
    )


def kernels(folder: Path, *files: tuple[str, str, np.ndarray]):
    for at, (name, dtype, array) in enumerate(files):
        tensor(folder / "rank_0/Net/0/0", f"Cast.{name}.0.0.{at}.output.0.ND.{dtype}.npy", array)
    return next(probe_kernel.open(folder).iterations).kernels


def test_a_short_name_in_the_files_finds_the_full_one(tmp_path: Path) -> None:
    found = match([operator("Default/a/Cast-op1"), operator("Default/b/Cast-op2")],
                  kernels(tmp_path, ("Cast-op2", "Float32", np.zeros((2, 3)))))  # fmt: skip
    assert [(one.operator.full_name, one.how) for one in found.values()] == [
        ("Default/b/Cast-op2", "last part")
    ]


def test_types_decide_where_numbers_differ(tmp_path: Path) -> None:
    operators = [operator("Default/Cast-op5", "Int8"), operator("Default/Cast-op6", "Float16")]
    files = kernels(
        tmp_path, ("Default_Cast-op0", "Float16", np.zeros(6)), ("Default_Cast-op1", "Int8", np.zeros(6))
    )
    found = match(operators, files)
    assert {name: one.operator.full_name for name, one in found.items()} == {
        "Default_Cast-op0": "Default/Cast-op6", "Default_Cast-op1": "Default/Cast-op5",
    }  # fmt: skip


def test_a_name_with_other_types_is_not_believed(tmp_path: Path) -> None:
    operators = [operator("Default/Cast-op0", "Int8"), operator("Default/Cast-op1", "Float16")]
    found = match(operators, kernels(tmp_path, ("Default_Cast-op0", "Float16", np.zeros(6))))
    assert [(one.operator.full_name, one.how) for one in found.values()] == [("Default/Cast-op1", "order")]


def test_order_decides_between_equals_and_the_execution_order_counts(tmp_path: Path) -> None:
    operators = [operator("Default/Cast-op7", line=1), operator("Default/Cast-op8", line=2)]
    files = kernels(
        tmp_path, ("Default_Cast-op0", "Float32", np.zeros(6)), ("Default_Cast-op1", "Float32", np.zeros(6))
    )
    names = ["Default/Cast-op7", "Default/Cast-op8"]
    for order, wanted in (((), names), (names[::-1], names[::-1])):
        found = match(operators, files, order)
        assert [found[f"Default_Cast-op{n}"].operator.full_name for n in (0, 1)] == wanted


def test_what_cannot_be_told_apart_is_left_open(tmp_path: Path) -> None:
    operators = [operator("Default/Cast-op7"), operator("Default/Cast-op8")]
    assert match(operators, kernels(tmp_path, ("Default_Cast-op0", "Float32", np.zeros(6)))) == {}
    with_size = kernels(tmp_path / "b", ("Default_Cast-op7", "Float32", np.zeros(99)))
    assert match(operators, with_size) == {}  # the name, but not its size


def test_one_damaged_graph_does_not_hide_the_others(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(LOOP, tmp_path / "loop"))
    (copy / "rank_0/graphs/ms_output_trace_code_graph_0.ir").write_text("gone\n")
    dump = probe_kernel.open(copy)
    assert find(dump, Line("misc.py", 27))
    assert "has no operators in it" in "\n".join(dump.problems)
    for path in (copy / "rank_0/graphs").iterdir():
        path.write_text("gone\n")
    with pytest.raises(FormatError, match="has no operators in it"):
        find(probe_kernel.open(copy), Line("misc.py", 27))


def test_nodes_that_the_execution_order_does_not_have_come_last(tmp_path: Path) -> None:
    operators = [operator("Default/Cast-op7", line=1), operator("Default/Cast-op8", line=2)]
    zeros = np.zeros(6)
    files = kernels(tmp_path, ("Default_Cast-op0", "Float32", zeros), ("Default_Cast-op1", "Float32", zeros))
    found = match(operators, files, ["Default/Add-op0", "Default/Add-op1", "Default/Cast-op8"])
    assert found["Default_Cast-op0"].operator.full_name == "Default/Cast-op8"


def test_many_operators_of_one_name_are_compared_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    module = importlib.import_module("probe_kernel.trace.match")
    agrees = module.agrees
    monkeypatch.setattr(module, "agrees", lambda op, k: asked.append(op) or agrees(op, k))
    count = 60
    operators = [operator(f"Default/Cast-op{n + 1000}", shape=(n + 1,)) for n in range(count)]
    files = kernels(tmp_path, *((f"Default_Cast-op{n}", "Float32", np.zeros(n + 1)) for n in range(count)))
    assert len(match(operators, files)) == count
    assert len(asked) <= 2 * count * count


# -- files that contradict the graph -----------------------------------------------------------------------

# The text of the document is kept as it is, so its lines are as long as they are there.
DOCUMENT = """\
  %20(equivoutput) = Conv2D(%17, %19) {instance name: conv2d} primitive_attrs: {IsFeatureMapInputList: (0)}
       : (<Tensor[Float32], (32, 256, 13, 13)>, <Tensor[Float32], (384, 256, 3, 3)>) -> (<Tensor[Float32], (32, 384, 13, 13)>)
       : (<Float16xNC1HWC0[const vector][32, 16, 13, 13, 16]>, <Float16xFracZ[const vector][144, 24, 16, 16]>) -> (<Float32xNC1HWC0[const vector][32, 24, 13, 13, 16]>)
       : full_name_with_scope: (Default/network-WithLossCell/_backbone-AlexNet/conv3-Conv2d/Conv2D-op12)
       ...
       # In file ./tain_alexnet.py(175)/        x = self.conv3(x)/
       ...
"""  # noqa: E501
SCOPED = flat("Default/network-WithLossCell/_backbone-AlexNet/conv3-Conv2d/Conv2D-op12")


def documented(folder: Path, kernel: str, output: np.ndarray) -> Path:
    """A dump with the document's graph, and one file of a kernel."""
    name = f"{kernel}.0.0.1623124369613540.output.0.DefaultFormat.{output.dtype}.npy"
    path = tensor(folder / "rank_0/ResNet50/0/0", name, output)
    (folder / "rank_0/graphs").mkdir()
    (folder / "rank_0/graphs/ms_output_trace_code_graph_0.ir").write_text(DOCUMENT)
    return path


@pytest.mark.parametrize("op_type", ["Conv2D", "Conv2d"])  # the document has both
@pytest.mark.parametrize("op_name", ["Conv2D-op12", SCOPED])
def test_the_documents_example_is_found(
    op_type: str, op_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Float32 in the graph, float16 in the file's name."""
    path = documented(tmp_path, f"{op_type}.{op_name}", np.zeros((32, 384, 13, 13), np.float16))
    (hit,) = find(probe_kernel.open(tmp_path), parse_line("tain_alexnet.py:175"))
    assert [slot.file for kernel in hit.kernels for slot in kernel.slots] == [path]
    assert "output.0 is float16 in its file, and Float32" in hit.cautions[-1]
    assert ("type Conv2d" in hit.cautions[0]) == ((op_type, op_name) == ("Conv2d", "Conv2D-op12"))
    assert cli.main(["find", "tain_alexnet.py:175", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert path.name in said and "take care" in said and "nothing of it" not in said


def test_a_contradiction_of_type_is_a_caution(tmp_path: Path) -> None:
    """A file that has the end of the name, and another operator's type."""
    one = evolve(operator("Default/a/Cast-op1"), op="Cast", full_name="Default/a/Fused/Thing-op1")
    tensor(tmp_path / "rank_0/Net/0/0", "cast.Thing-op1.0.0.1.output.0.ND.Float32.npy", np.zeros((2, 3)))
    found = match([one], next(probe_kernel.open(tmp_path).iterations).kernels)
    (only,) = found.values()
    assert only.how == "last part" and "calls it Cast" in only.cautions[0]


def test_files_of_another_size_are_near(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documented(tmp_path, "Conv2D.Conv2D-op12", np.zeros(7, np.float32))
    (hit,) = find(probe_kernel.open(tmp_path), parse_line("tain_alexnet.py:175"))
    assert hit.kernels == () and hit.near == ("Conv2D-op12",)
    assert cli.main(["find", "tain_alexnet.py:175", str(tmp_path)]) == 0
    assert "nothing is surely its own" in capsys.readouterr().out
