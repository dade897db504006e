"""What MindSpore writes of a graph holds nothing of ours: exported models, checkpoints, the compile cache."""

from __future__ import annotations

from pathlib import Path

import pytest

ms = pytest.importorskip("mindspore")

from graph_nets import batch  # noqa: E402
from mindspore import nn  # noqa: E402
from mindspore.train.mind_ir_pb2 import ModelProto  # noqa: E402
from mindspore_dumping import records  # noqa: E402
from mindspore_launching import FORKS  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")
HERE = Path(__file__).parents[1]


def process(script: str, *args: object, **environment: str) -> None:
    """Run a script that lies beside this file."""
    FORKS.run(str(HERE / script), *map(str, args), **environment)


def model(path: Path) -> list[object]:
    """What an exported model computes: its operators with their attributes, and its weights, without names, which
    hold numbers that MindSpore draws from the clock, from memory and from counters of the process."""
    proto = ModelProto()
    proto.ParseFromString(path.read_bytes())
    nodes = [node for graph in (proto.graph, *proto.functions) for node in graph.node]
    found: list[object] = [
        (node.op_type, len(node.input), sorted(a.name for a in node.attribute)) for node in nodes
    ]
    return [*found, *(p.raw_data for p in proto.graph.parameter)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "plain"
    process("exporting.py", folder)
    return folder


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_an_export_while_started_is_the_one_without(level: str, plain: Path, tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    process("exporting.py", watched, level)
    for name in ("net.onnx", "net.ckpt"):
        assert (watched / name).read_bytes() == (plain / name).read_bytes()
    for name in ("net.mindir", "doubled.mindir"):
        assert model(watched / name) == model(plain / name)
    graph = nn.GraphCell(ms.load(str(watched / "net.mindir")))
    expected = nn.GraphCell(ms.load(str(plain / "net.mindir")))
    assert graph(batch()).asnumpy().tobytes() == expected(batch()).asnumpy().tobytes()
    dump = Path(f"{watched}.dump")
    assert "Cell.0.Dense.forward.0" in records(dump if level == "L0" else dump / "graph")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The losses and gradients of a run that has neither a cache nor Probe."""
    log = tmp_path_factory.mktemp("cache") / "alone"
    process("caching.py", log, "-")
    return log


@pytest.mark.parametrize(
    ("order", "level"),
    [("D-", "L0"), ("-D", "L0"), ("D-", "mix"), ("D-", "L1")],
    ids=["watched first", "watched later", "watched first, mix", "watched first, L1"],
)
def test_the_compile_cache_never_holds_a_tap_and_hides_no_record(
    order: str, level: str, alone: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    settings = {"MS_COMPILER_CACHE_ENABLE": "1", "MS_COMPILER_CACHE_PATH": str(cache)}
    for i, how in enumerate(order):
        dump = tmp_path / f"dump{i}"
        process("caching.py", tmp_path / str(i), "-" if how == "-" else dump, level, **settings)
        assert (tmp_path / str(i)).read_text() == alone.read_text()
        if how == "D" and level != "L1":
            names = set(records(dump if level == "L0" else dump / "graph"))
            # call 0 is the network by itself, the next the training step's
            assert {"Cell.0.Dense.forward.0", "Cell.1.Tanh.forward.0", "Cell.0.Dense.backward.1"} <= names
        files = sorted(cache.rglob("*.mindir"))
        assert [file.name for file in files] == [f"compile_cache_{n}.mindir" for n in range(5)]
        assert not any(b"Custom" in file.read_bytes() for file in files)
