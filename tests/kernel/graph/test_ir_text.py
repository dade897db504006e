"""The graph as text: real files by MindSpore 2.7 and 2.10, and what the documents show of 1.5 and of Ascend."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from probe_format.errors import FormatError
from probe_kernel.graph.ir_text import parse_ir, read_ir
from probe_kernel.graph.model import Graph

DATA = Path(__file__).parents[1] / "data"
VERSIONS = ("2.7", "2.10")


def lines(version: str) -> list[str]:
    with gzip.open(DATA / f"alexnet-{version}.ir.gz", "rt") as file:
        return file.readlines()


@pytest.fixture(scope="module", params=VERSIONS)
def graph(request: pytest.FixtureRequest) -> Graph:
    return parse_ir(iter(lines(request.param)))


def test_every_operator_of_a_real_graph_is_understood(graph: Graph) -> None:
    assert graph.problems == ()
    assert sum(op.is_kernel for op in graph.operators) == 45
    order = (DATA / "alexnet-order.csv").read_text().split()[1:]
    assert sorted(op.full_name for op in graph.operators if op.is_kernel) == sorted(order)
    for op in graph.operators:
        assert op.full_name, op
        if op.is_kernel:
            assert op.outputs and all(t.dtype for t in (*op.device_inputs, *op.device_outputs)), op
            assert all(t.shape is not None for t in op.device_inputs), op


def test_an_operator_in_full(graph: Graph) -> None:
    conv = next(op for op in graph.operators if op.full_name.endswith("conv3-Conv2d/Conv2D-op0"))
    assert conv.op == "Conv2D"
    assert len(conv.args) == 2
    assert [(t.dtype, t.shape) for t in conv.inputs] == [("Float32", (2, 6, 7, 7)), ("Float32", (8, 6, 3, 3))]
    assert [(t.dtype, t.shape, t.format) for t in conv.device_outputs] == [
        ("Float32", (2, 8, 7, 7), "DefaultFormat")
    ]
    own = [frame for frame in conv.frames if frame.file.endswith("alex.py")]
    assert [(f.line, f.text.strip()) for f in own][:2] == [
        (29, "def construct(self, x):"),
        (35, "x = self.conv3(x)"),
    ]
    assert not conv.gradient


# Line of the script -> forward operators, gradients.
WANTED = {
    30: (["conv1-Conv2d/Conv2D-op0"], ["Conv2DBackpropFilter"]),
    31: (["relu-ReLU/ReLU-op0"], ["ReluGrad"]),
    32: (["max_pool2d-MaxPool2d/MaxPool-op0"], ["MaxPoolGrad"]),
    33: (["conv2-Conv2d/Conv2D-op0"], ["Conv2DBackpropInput", "Conv2DBackpropFilter"]),
    34: (["relu-ReLU/ReLU-op1"], ["ReluGrad"]),
    35: (
        ["conv3-Conv2d/Conv2D-op0", "conv3-Conv2d/BiasAdd-op0"],
        ["Conv2DBackpropInput", "BiasAddGrad", "Conv2DBackpropFilter"],
    ),
    36: (["relu-ReLU/ReLU-op2"], ["ReluGrad"]),
    37: (["max_pool2d-MaxPool2d/MaxPool-op1"], ["MaxPoolGrad"]),
    38: (["flatten-Flatten/Flatten-op0"], ["Reshape"]),
    39: (["fc1-Dense/MatMul-op0", "fc1-Dense/BiasAdd-op0"], ["MatMul", "BiasAddGrad", "MatMul"]),
    40: (["relu-ReLU/ReLU-op3"], ["ReluGrad"]),
    41: (["fc2-Dense/MatMul-op0", "fc2-Dense/BiasAdd-op0"], ["MatMul", "BiasAddGrad", "MatMul"]),
}


@pytest.mark.parametrize("line", WANTED)
def test_each_layers_line_has_its_operators(graph: Graph, line: int) -> None:
    found = graph.at("alex.py", line)
    forward, gradients = WANTED[line]
    assert ["/".join(op.full_name.split("/")[-2:]) for op in found if not op.gradient] == forward
    assert [op.op for op in found if op.gradient] == gradients


def test_a_line_of_a_block_is_its_head_alone(graph: Graph) -> None:
    assert len(graph.at("alex.py", 29)) > 25  # def construct
    assert graph.at("alex.py", 42) == ()  # return x
    assert graph.at("kread/alex.py", 35) == graph.at("alex.py", 35) != ()
    assert graph.at("lex.py", 35) == ()


def test_the_scope_of_a_gradient_is_its_forward_operators(graph: Graph) -> None:
    (bias,) = (op for op in graph.at("alex.py", 39) if op.op == "BiasAddGrad")
    assert "fc2-Dense" in bias.full_name  # MindSpore's own mistake
    assert "fc1-Dense" in graph.scope_of(bias)
    forward = next(op for op in graph.operators if op.op == "Conv2D")
    assert graph.scope_of(forward) == forward.full_name


OLD = """\
  %24(equivoutput) = Conv2D(%23, %21) {instance name: conv2d} primitive_attrs: {compile_info: , out_channel:
192, mode: 1, input_names: [x, w], IsFeatureMapInputList: (0)}
       : (<Tensor[Float32]x[const vector][32, 128, 13, 13]>, <Tensor[Float16]x[const vector][192, 128, 3, 3]>) -> (<Tensor[Float16]x[const vector][32, 192, 13, 13]>)
       : (<Float16xNC1HWC0[const vector][32, 8, 13, 13, 16]>, <Float16xFracZ[const vector][72, 12, 16, 16]>) -> (<Float16xNC1HWC0[const vector][32, 12, 13, 13, 16]>)
       : (Default/network-WithLossCell/_backbone-AlexNet/conv3-Conv2d/Conv2D-op107)
       # In file /abs/official/cv/alexnet/src/alexnet.py(58)/        x = self.conv3(x)/
  %25(equivoutput) = BiasAdd(%24, %22) {instance name: bias_add} primitive_attrs: {output_used_num: (1)}
       : (<Tensor[Float16]x[const vector][32, 192, 13, 13]>) -> (<Tensor[Float16]x[const vector][192]>) -> (<Tensor[Float16]x[const vector][32, 192, 13, 13]>)
       : (Default/network-WithLossCell/_backbone-AlexNet/conv3-Conv2d/BiasAdd-op105)
       # In file /abs/official/cv/alexnet/src/alexnet.py(58)/        x = self.conv3(x)/
"""  # noqa: E501
NEW = """\
  %20(equivoutput) = Conv2D(%17, %19) {instance name: conv2d} primitive_attrs: {input_names: [
x, w],    pri_format: NC1HWC0, pad_list: (1, 1, 1, 1), output_used_num:
(1), stream_id:     0, output_names: [output]}
       : (<Tensor[Float32], (32, 256, 13, 13)>, <Tensor[Float32], (384, 256, 3, 3)>) -> (<Tensor[Float32], (32, 384, 13, 13)>)
       : (<Float16xNC1HWC0[const vector][32, 16, 13, 13, 16]>, <Float16xFracZ[const vector][144, 24, 16, 16]>) -> (<Float32xNC1HWC0[const vector][32, 24, 13, 13, 16]>)
       : full_name_with_scope: (Default/network-WithLossCell/_backbone-AlexNet/conv3-Conv2d/Conv2D-op12)
       # In file ./tain_alexnet.py(175)/        x = self.conv3(x)/
"""  # noqa: E501


def test_the_text_in_the_documents_of_1_5() -> None:
    graph = parse_ir(iter(OLD.splitlines(keepends=True)))
    assert graph.problems == ()
    conv, bias = graph.at("src/alexnet.py", 58)
    assert conv.full_name == "Default/network-WithLossCell/_backbone-AlexNet/conv3-Conv2d/Conv2D-op107"
    assert [t.shape for t in conv.inputs] == [(32, 128, 13, 13), (192, 128, 3, 3)]
    assert [(t.dtype, t.format, t.shape) for t in conv.device_inputs] == [
        ("Float16", "NC1HWC0", (32, 8, 13, 13, 16)),
        ("Float16", "FracZ", (72, 12, 16, 16)),
    ]
    assert conv.args == ("%23", "%21")
    assert [t.shape for t in bias.inputs] == [(32, 192, 13, 13), (192,)]
    assert [t.shape for t in bias.outputs] == [(32, 192, 13, 13)]


def test_the_text_in_the_documents_of_ascend() -> None:
    graph = parse_ir(iter(NEW.splitlines(keepends=True)))
    (conv,) = graph.at("tain_alexnet.py", 175)
    assert conv.full_name.endswith("conv3-Conv2d/Conv2D-op12")
    assert conv.device_outputs[0].format == "NC1HWC0"
    assert conv.outputs[0].shape == (32, 384, 13, 13)


def test_constants_whose_values_go_over_lines() -> None:
    graph = read_ir(DATA / "loop/rank_0/graphs/ms_output_trace_code_graph_0.ir")
    (add,) = (op for op in graph.operators if op.op == "Add")
    assert add.args[0] == "%para1_a"
    assert add.args[1].startswith("Tensor(shape=[2, 3]") and add.args[1].endswith("]])")
    assert graph.operators[-1].op == "Return"


def test_an_expression_over_several_lines_and_unusual_types() -> None:
    text = [
        '  %0(x) = PrimFunc_Foo(%para1_a, (1, 2), "a, b)", I64(3)) {instance name: foo}\n',
        "      : (<Tuple[Tensor[Float32]*2], TupleShape((2, 3), (4))>, <Int64, NoShape>)"
        " -> (<Tensor[BFloat16], (-1, 3)>)\n",
        "      : (Tuple, Scalar) -> (Tensor)\n",
        "      # Fullname with scope: (Default/Foo-op0)\n",
        "      # In file a:b/we ird.py:7~9, 4~19/        y = foo(a,/"
        "<~~This line of code can be shared by multiple nodes, and may be duplicated./\n",
    ]
    (op,) = parse_ir(iter(text)).operators
    assert op.op == "Foo"
    assert op.args == ("%para1_a", "(1, 2)", '"a, b)"', "I64(3)")
    assert [t.dtype for t in op.inputs] == ["", "Int64"]
    assert op.outputs[0].shape == (-1, 3)
    assert not op.is_kernel
    (frame,) = op.frames
    assert (frame.file, frame.line, frame.end, frame.text) == ("a:b/we ird.py", 7, 9, "        y = foo(a,")
    assert [line for line in range(12) if frame.covers(line)] == [7, 8, 9]


def test_what_is_no_graph_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ms_output_trace_code_graph_0.ir"
    path.write_text("hello\n")
    with pytest.raises(FormatError, match="has no operators in it"):
        read_ir(path)


def test_an_operator_cut_short_is_a_problem_and_the_others_stay() -> None:
    text = "  %1(a) = Foo(%0, (1\n" + OLD
    graph = parse_ir(iter(text.splitlines(keepends=True)), "g.ir")
    assert len(graph.operators) == 2
    assert graph.problems == ("g.ir:1: an operator cannot be read: a bracket is not closed.",)
