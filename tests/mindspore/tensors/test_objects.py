"""Values of MindSpore that are not tensors."""

from pathlib import Path

import mindspore as ms
import pytest
from probe_format import jsonio
from probe_format.values import UNKNOWN
from probe_format.write import Coverage
from probe_mindspore.tensors.forms import dtype_name
from probe_mindspore.tensors.leaf import Placement, TensorLeaf, TensorOptions
from probe_mindspore.tensors.objects import object_json
from probe_runtime.collect import Part, Walk


def _json(value):
    walk = Walk(TensorLeaf(TensorOptions(Path()), Coverage(), lambda event: None), lambda why: None)
    return jsonio.loads(Part(walk, "r", "input", False, True, "input_args").arguments((value,))[0])[0]


@pytest.mark.parametrize("name", ["Float16", "BFloat16", "Int64", "Bool", "Float8E4M3FN"])
def test_dtypes(name):
    types = [getattr(ms, n) for n in ("float16", "bfloat16", "int64", "bool_", "float8_e4m3fn")]
    by_name = {str(t): t for t in types}
    assert _json(by_name[name]) == {"type": "mindspore.dtype", "value": name}


def test_what_python_has_is_left_to_the_tree():
    assert object_json(3) is UNKNOWN
    assert _json(slice(1, 3)) == {"type": "slice", "value": [1, 3, None]}
    assert _json(...) == {"type": "ellipsis", "value": "..."}
    assert _json({"dtype": ms.float32, "n": 2})["dtype"] == {"type": "mindspore.dtype", "value": "Float32"}


def test_a_cell_is_told_by_its_class():
    told = {"type": "mindspore.nn.Cell", "value": "mindspore.nn.layer.basic.Dense"}
    assert _json([ms.nn.Dense(1, 1)]) == [told]


def test_point_to_point_operation(tmp_path):
    op = object.__new__(ms.mint.distributed.P2POp)
    op.op, op.tensor, op.peer, op.tag, op.group = "isend", ms.Tensor([1.0, 2.0]), 1, 0, "group"
    leaf = TensorLeaf(TensorOptions(tmp_path), Coverage(), lambda event: None)
    placement = Placement("r", "input", False)
    body = jsonio.loads(jsonio.dumps(leaf.leaf(placement, op, (0,))))
    assert body["class_type"] == "mindspore.mint.distributed.P2POp"
    assert (body["op"], body["peer"], body["tag"]) == ("isend", 1, 0)
    assert body["tensor"]["Max"] == 2.0 and placement.found[0][0] == (0, "tensor")
    assert len(body["group_id"]) == 8
    op.op = "irecv"  # what it holds before means nothing, and after it is what came
    given, got = (leaf.leaf(Placement("r", part, False), op, (0,)) for part in ("input", "output"))
    assert jsonio.loads(given)["tensor"] is None and jsonio.loads(got)["tensor"]["Max"] == 2.0


@pytest.mark.parametrize(
    "name",
    [
        *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16"),
        *("float32", "float64", "bfloat16", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"),
        *("hifloat8", "qint4x2", "string"),
    ],
)
def test_dtypes_that_mindtorch_made_say_their_long_name(name):
    """It lets str() of a dtype be its repr(): mindspore.float32."""
    dtype = getattr(ms, name)

    class Long:
        def __str__(self):
            return repr(dtype)

    assert repr(dtype).startswith("mindspore.")
    assert dtype_name(Long()) == dtype_name(dtype) == str(dtype)
