"""Names of kernel dump files: every form in the documents, and round trips."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from probe_format.errors import FormatError
from probe_kernel.read.file_name import FileName, flat, is_file_name, parse_file_name

BERT = (
    "BNTrainingUpdate.Default_network-YoloWithLossCell_yolo_network-YOLOV3DarkNet53_feature_map-YOLOv3_backblock0-"
    "YoloBlock_conv3-SequentialCell_1-BatchNorm2d_BNTrainingUpdate-op5489.137.1608983934774491"
)
CONV = "Conv2D.Default_network-WithLossCell__backbone-AlexNet_conv3-Conv2d_Conv2D-op12"

# Text, kind, and what of it must be found.
FORMS = [
    (
        f"{CONV}.0.0.1623124369613540.output.0.DefaultFormat.Float32.npy",
        "npy",
        {"op_type": "Conv2D", "op_name": CONV[7:], "task": 0, "stream": 0, "timestamp": 1623124369613540,
         "io": "output", "slot": 0, "format": "DefaultFormat", "dtype": "Float32"},
    ),
    ("Conv2D.Conv2D-op107.2.2.1623124369613540.output.0.DefaultFormat.npy", "npy", {"dtype": "", "task": 2}),
    ("Add.Default_Add-op1.2.161243956333802", "bin", {"stream": None, "task": 2, "timestamp": 161243956333802}),
    (f"{CONV}.2.7.161243956333802", "bin", {"stream": 7, "io": "", "slot": None}),
    (f"{CONV}.2.7.161243956333802.input.1.384x256x3x3.npy", "npy", {"shape": (384, 256, 3, 3), "slot": 1}),
    (f"{BERT}.input.0.30x1024x17x17.npy", "npy", {"stream": None, "task": 137, "shape": (30, 1024, 17, 17)}),
    ("MatMul.m.4.7.16.input.0.npy", "npy", {"format": "", "shape": None}),
    ("MatMul.m.4.7.16.input.0.pt", "pt", {"slot": 0}),
    ("MatMul.m.4.7.16.output.1.360.float16.NC1HWC0.bin", "part", {"shape": (360,), "format": "NC1HWC0"}),
    ("MatMul.m.4.7.16.output.1.4_90.float16.ND.bin", "part", {"shape": (4, 90), "dtype": "float16"}),
    ("Conv2D.c.3.7.16.l1buffer.0.bin", "part", {"io": "l1buffer"}),
    ("Conv2D.c.3.7.16.space.0.bin", "part", {"io": "space"}),
    ("Cast.c.3.7.16.output.0.ND.float8_e5m2", "raw", {"dtype": "float8_e5m2", "suffix": ""}),
    ("Cast.c.3.7.16.output.0.FRACTAL_Z:16.DT_BF16.npy", "npy", {"format": "FRACTAL_Z:16"}),
    ("Opdebug.Node_OpDebug.1.2.16", "bin", {"op_type": "Opdebug"}),
    ("Opdebug.Node_OpDebug.1.2.16.output.0.json", "overflow", {"slot": 0}),
    ("MatMul.Default_MatMul-op1.json", "args", {"op_type": "MatMul", "task": None}),
    ("Parameter.data-3.0.0.16.output.0.DefaultFormat.Float32.npy", "npy", {"op_name": "data-3"}),
    ("Cast.c.3.7.16.csv", "csv", {"io": ""}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "found"), FORMS, ids=[text[-40:] for text, _, _ in FORMS])
def test_each_form_of_the_documents(text: str, kind: str, found: dict[str, object]) -> None:
    name = parse_file_name(text)
    assert name.kind == kind
    assert {key: getattr(name, key) for key in found} == found
    assert str(name) == text


@pytest.mark.parametrize(
    "text",
    ["", "statistic.csv", "mapping.csv", "1270012411.npy", "notes.txt", "a.b.c.d", "Add.x.0.0.016.input.0.ND.npy",
     "Add.x.0.0.16.input.0.ND.f.g.npy", "Add.x.0.0.16.middle.0.ND.npy", "Add.x.0.0.16.npy", "dir/Add.x.0.0.16"],
)  # fmt: skip
def test_what_is_no_name_is_refused(text: str) -> None:
    assert not is_file_name(text)
    with pytest.raises(FormatError, match="not the name of a kernel dump file"):
        parse_file_name(text)


def test_full_names_as_they_stand_in_files() -> None:
    assert flat("Default/net/conv1-Conv2d/Conv2D-op0") == "Default_net_conv1-Conv2d_Conv2D-op0"
    assert flat("a.b\\c d") == "a_b_c_d"


plain = st.text("abcXYZ019_-", min_size=1, max_size=12)
word = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True)
number = st.integers(0, 10**19)


@st.composite
def names(draw: st.DrawFn) -> FileName:
    """Any name that the dumpers can write; operator names may even have dots."""
    head = FileName(draw(plain), ".".join(draw(st.lists(plain, min_size=1, max_size=3))))
    kind = draw(st.sampled_from(["npy", "raw", "bin", "shape", "plain", "part", "piece", "args"]))
    if kind == "args":
        assume("." not in head.op_name)
        return FileName(head.op_type, head.op_name, suffix=".json")
    # A name that ends in a number of its own cannot be told from one more number: the dumpers write no dots there.
    assume(not head.op_name.rpartition(".")[2].isdigit())
    out = FileName(head.op_type, head.op_name, draw(number), draw(st.none() | number), draw(number))
    if kind == "bin":
        return out
    io, slot = draw(st.sampled_from(["input", "output"])), draw(st.integers(0, 99))
    shape = tuple(draw(st.lists(st.integers(0, 9999), min_size=1, max_size=4)))
    more: dict[str, object] = {
        "npy": {"format": draw(word), "dtype": draw(word | st.just("")), "suffix": ".npy"},
        "raw": {
            "format": draw(word),
            "dtype": draw(word.filter(lambda d: d not in ("npy", "bin", "pt", "json", "csv"))),
        },
        "shape": {"shape": shape, "suffix": ".npy"},
        "plain": {"suffix": draw(st.sampled_from([".npy", ".pt", ".json"]))},
        "part": {"shape": shape, "dtype": draw(word), "format": draw(word), "suffix": ".bin"},
        "piece": {"suffix": ".bin"},
    }[kind]
    if kind == "piece":
        io = draw(st.sampled_from(["l1buffer", "space"]))
    return FileName(out.op_type, out.op_name, out.task, out.stream, out.timestamp, io, slot, **more)  # type: ignore[arg-type]


@given(names())
def test_parsing_gives_the_parts_back(name: FileName) -> None:
    assert parse_file_name(str(name)) == name
