"""MindSpore really dumps: a small network is trained under probe_kernel, and its files are read back."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mindspore_launching import FORKS, run_ranks
from probe_kernel import KernelDump, settings

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="needs MindSpore")

SCRIPT = Path(__file__).with_name("kernelrun.py")
NOTHING = dict.fromkeys(("MINDSPORE_DUMP_CONFIG", "MS_ACL_DUMP_CFG_PATH", "MS_DIAGNOSTIC_DATA_PATH"))
CONV = "Default/network-WithLossCell/_backbone-Net/conv-Conv2d/Conv2D-op0"
FC = "Default/network-WithLossCell/_backbone-Net/fc-Dense/MatMul-op0"


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A path of letters only: MindSpore takes no dots, and pytest's names may have brackets."""
    return tmp_path_factory.mktemp("kernels") / "dump"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of MindSpore's in the environment of a run."""
    for name in [k for k in os.environ if k in NOTHING or k.startswith("MS_")]:
        monkeypatch.delenv(name)


def ran(case: str, path: Path, **options: Any) -> dict[str, Any]:
    given = json.dumps({"case": case, "path": str(path), "options": options})
    done = FORKS.run(str(SCRIPT), given, ends=None)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, done.stderr[-3000:]
    return dict(json.loads(lines[0].removeprefix("RESULT")))


def arrays(path: Path) -> list[Path]:
    return sorted(path.rglob("*.npy"))


def of(path: Path, op: str, side: str, slot: int) -> np.ndarray:
    """The one array of an operator (its name as in the graph) in a folder."""
    (file,) = (
        p for p in arrays(path) if f".{op.replace('/', '_')}." in p.name and f".{side}.{slot}." in p.name
    )
    return np.load(file)


def convolved(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """A valid convolution, written out. x: (n, c, h, w); weight: (o, c, 3, 3)."""
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight)


def test_everything_and_the_values_are_the_networks_own(folder: Path) -> None:
    result = ran("train", folder, net_name="Small")
    rank = folder / "rank_0"
    files = arrays(rank)
    assert result["files"] == len(files) > 30
    assert result["size"] == sum(p.stat().st_size for p in files)
    assert result["iterations"] == [0, 1, 2]
    assert {p.parent.name for p in files} == {"0", "1", "2"}
    assert {p.parts[-4] for p in files} == {"Small"}
    assert result["folder"] == str(rank)
    assert result["never_ran"] == []
    assert result["warned"] == []
    assert "goes on dumping" in result["notes"][0]
    for iteration in (0, 1, 2):
        here = next((rank / "Small").glob(f"*/{iteration}"))
        x, weight = of(here, CONV, "input", 0), of(here, CONV, "input", 1)
        np.testing.assert_allclose(of(here, CONV, "output", 0), convolved(x, weight), rtol=1e-4, atol=1e-5)
        y, w = of(here, FC, "input", 0), of(here, FC, "input", 1)
        np.testing.assert_allclose(of(here, FC, "output", 0), y.reshape(4, -1) @ w.T, rtol=1e-4, atol=1e-5)
    x = np.linspace(-1, 1, 4 * 2 * 4 * 4, dtype=np.float32).reshape(4, 2, 4, 4)
    np.testing.assert_array_equal(of(next((rank / "Small").glob("*/0")), CONV, "input", 0), x)
    # The run is the same run, and the environment is as it was.
    assert result["losses"] == ran("plain", folder)["losses"]
    assert result["during"]["MINDSPORE_DUMP_CONFIG"] == str(folder / "kernel_kbyk_dump.json")
    assert result["after"] == NOTHING
    written = json.loads((folder / "kernel_kbyk_dump.json").read_text())
    assert written == settings(KernelDump(path=str(folder), net_name="Small"), "cpu", {})


def test_a_list_of_names(folder: Path) -> None:
    result = ran("train", folder, kernels=[CONV, FC, "Default/none-Dense/MatMul-op0"])
    ops = {p.name.split(".")[1] for p in arrays(folder)}
    assert ops == {CONV.replace("/", "_"), FC.replace("/", "_")}
    assert result["kernels"] == 2
    (missing,) = result["never_ran"]
    assert missing.startswith(
        "'Default/none-Dense/MatMul-op0': no operator of this name was compiled. Did you mean"
    )
    assert FC in missing
    assert [w for w in result["warned"] if "nothing was dumped for 'Default/none-Dense/MatMul-op0'" in w]


@pytest.mark.once
def test_a_type(folder: Path) -> None:
    result = ran("train", folder, kernels=["conv", "Conv2DD"], iterations="0")
    kinds = {p.name.split(".")[0] for p in arrays(folder)}
    assert "Conv2D" in kinds
    assert all("conv" in p.name.lower() for p in arrays(folder))
    assert len(result["never_ran"]) == 1
    assert "Did you mean 'Conv2D'" in result["never_ran"][0]


def test_an_expression_and_iterations(folder: Path) -> None:
    wanted = ["name-regex(.*fc-Dense.*)", "name-regex(fc-Dense)"]
    result = ran("train", folder, kernels=wanted, iterations=[0, 2])
    assert arrays(folder)
    assert all("fc-Dense" in p.name for p in arrays(folder))
    assert result["iterations"] == [0, 2]
    assert {p.parent.name for p in arrays(folder)} == {"0", "2"}
    (missing,) = result["never_ran"]
    assert missing.startswith("'name-regex(fc-Dense)'")
    assert "must match the whole name" in missing
    assert not [n for n in result["notes"] if "goes on" in n]


@pytest.mark.once
def test_steps_counted_by_the_script(folder: Path) -> None:
    """Four runs of the graph, step() after the second: two iterations of two runs each."""
    result = ran("manual", folder, kernels=[CONV], inputs=False, iterations="1-9")
    assert result["iterations"] == [1]
    assert len(arrays(folder)) == 2


@pytest.mark.once
def test_inputs_alone(folder: Path) -> None:
    """Outputs alone: `test_level_l2_of_a_session`."""
    ran("train", folder, iterations=0, outputs=False)
    assert {p.name.split(".")[5] for p in arrays(folder)} == {"input"}


def test_jit_in_pynative_mode_is_dumped_after_eager_operators(folder: Path) -> None:
    result = ran("jit", folder, kernels=["Sin"])
    np.testing.assert_allclose(np.load(next(p for p in arrays(folder) if ".output.0." in p.name)),
                               np.sin([0.5, 1.0]), rtol=1e-6)  # fmt: skip
    assert result["never_ran"] == []


def test_eager_operators_alone_dump_nothing_and_that_is_said(folder: Path) -> None:
    result = ran("eager", folder)
    assert result["files"] == 0
    assert "No graph was compiled" in result["said"]
    assert [w for w in result["warned"] if "No graph was compiled" in w]


@pytest.mark.parametrize(
    "first", ["jit", "graph", *(pytest.param(f, marks=pytest.mark.once) for f in ("optimizer", "forgotten"))]
)
def test_after_a_graph_it_is_refused(folder: Path, first: str) -> None:
    result = ran("late", folder, first=first)
    assert result["error"].startswith("UsageError: MindSpore has compiled a graph in this process already (")
    assert not folder.exists()
    assert result["after"] == NOTHING


# option -> what MindSpore itself says for it when the graph is compiled (reference), for comparison with ours
WRONG = [
    ({"saved_data": "statistic"}, "saved_data: MindSpore on CPU refuses statistics"),
    ({"path": "/data/a.b"}, "'.'; MindSpore takes only letters, digits, '-', '_' and '/'. Write"),
    ({"path": "dump"}, "path: 'dump' is not absolute. Write"),
    ({"path": None}, "path: is not given, and MS_DIAGNOSTIC_DATA_PATH is not set either."),
    ({"iterations": "a-b"}, "iterations: 'a-b' is neither a number nor a range. Write"),
    ({"iterations": "3-1"}, "iterations: the range '3-1' ends before it begins"),
    ({"saved_data": "foo"}, 'saved_data: \'foo\' is not known. Write "tensor", "statistic" or "full".'),
    ({"op_debug_mode": 7}, "op_debug_mode: 7 is not known."),
    ({"net_name": "A/B"}, "net_name: 'A/B' may hold letters"),
    ({"kernels": ["name-regex(a"]}, "kernels[0]: 'name-regex(a' has no closing bracket"),
    ({"kernels": ["name-regex((a)"]}, "is not a regular expression"),
    ({"set_dump": True}, "set_dump: MindSpore refuses set_dump (dump_mode 2) on CPU."),
    ({"iteration": "all"}, "iteration: is not an option of a kernel dump. Did you mean 'iterations'?"),
    ({"backend": "cpuu"}, "backend: 'cpuu' is not a backend. Did you mean 'cpu'"),
]


def test_what_is_wrong_is_refused_before_anything_is_compiled(folder: Path) -> None:
    result = ran("wrong", folder, wrong=[w for w, _ in WRONG])
    for (wrong, says), told in zip(WRONG, result["told"], strict=True):
        assert any(says in line for line in told), (wrong, told)
    assert result["nothing"]  # not even the folder
    assert result["files"] > 30  # and the right one still works in this process


@pytest.mark.once
def test_the_environment_comes_back_when_the_run_raises(folder: Path) -> None:
    result = ran("raise", folder)
    assert result["after"] == {**NOTHING, "MS_ACL_DUMP_CFG_PATH": "/before.json"}
    assert result["files"] > 10
    assert result["warned"] == []


@pytest.mark.once
def test_settings_of_somebody_else_are_not_overridden(folder: Path) -> None:
    """MindSpore may have read them: an eager operator is enough (seen on 2.7.0)."""
    result = ran("set", folder, file=str(folder.parent / "mine.json"))
    assert "MINDSPORE_DUMP_CONFIG: is set already" in result["error"]
    assert not folder.exists()


@pytest.mark.once
def test_the_path_of_the_environment(folder: Path) -> None:
    result = ran("diagnostic", folder)
    assert result["folder"] == f"{folder}/debug_dump/rank_0"
    assert result["files"] > 10
    assert result["during"]["MS_DIAGNOSTIC_DATA_PATH"] == str(folder)
    assert result["after"] == NOTHING


@pytest.mark.once
def test_an_earlier_dump_is_left_alone(folder: Path) -> None:
    (folder / "rank_0" / "Net").mkdir(parents=True)
    result = ran("train", folder)
    assert "holds an earlier dump" in result["error"]
    assert not (folder / "kernel_kbyk_dump.json").exists()


@pytest.mark.once
def test_two_ranks(folder: Path) -> None:
    folder.mkdir()
    answer = str(folder.parent / "answer")
    given = json.dumps(
        {"case": "ranks", "path": str(folder), "options": {"iterations": [1]}, "answer": answer}
    )
    run_ranks(str(SCRIPT), given)
    for rank in (0, 1):
        result = json.loads(Path(f"{answer}.{rank}").read_text())
        assert result["rank"] == rank
        assert result["folder"] == str(folder / f"rank_{rank}")
        assert result["iterations"] == [1]
        assert result["files"] == len(arrays(folder / f"rank_{rank}")) > 10
    assert json.loads((folder / "kernel_kbyk_dump.json").read_text())


def test_level_l2_of_a_session(folder: Path) -> None:
    result = ran(
        "level2", folder, list=["Conv2D", "name-regex(.*fc-Dense.*)"], step=[1, "2-5"], data_mode=["output"]
    )
    assert result["iterations"] == [1, 2]
    assert {p.name.split(".")[5] for p in arrays(folder)} == {"output"}
    assert result["never_ran"] == []
    assert len(result["losses"]) == 3


def test_level_l2_of_the_debugger(folder: Path) -> None:
    result = ran("debugger", folder, list=["Conv2D", "NoSuch"], step=[1])
    assert {p.parent.name for p in arrays(folder)} == {"1"}
    assert {p.name.split(".")[0] for p in arrays(folder)} >= {"Conv2D"}
    assert [w for w in result["warned"] if "nothing was dumped for 'NoSuch'" in w]
    assert result["after"] == NOTHING


def test_level_l2_tells_what_cannot_be(folder: Path) -> None:
    result = ran("level2", folder, task="statistics", scope=["a", "b"], list=["conv*"], data_mode=["forward"])
    for part in (
        "scope: is not for level L2",
        "list[0]: 'conv*'",
        "data_mode: kernels",
        'Write task "tensor"',
    ):
        assert part in result["error"]
