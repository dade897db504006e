"""The ways of Ascend, with a stand-in for MindSpore: variables, switches and refusals. Never run on hardware."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from probe_format.errors import ConfigError, UsageError
from probe_kernel import mindspore as kernels

VARIABLES = ("MINDSPORE_DUMP_CONFIG", "MS_ACL_DUMP_CFG_PATH", "MS_DIAGNOSTIC_DATA_PATH", "ENABLE_MS_GE_DUMP",
             "GRAPH_OP_RUN", "RANK_ID", "MS_ROLE")  # fmt: skip


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What was called of a MindSpore on Ascend, jit_level O2, that compiles no graph."""
    made: list[Any] = []

    def called(name: str) -> Any:
        return lambda *args: made.append((name, *args))

    context = {"device_target": "Ascend", "jit_level": "O2"}
    c = SimpleNamespace(**{n: called(n) for n in ("_dump_start", "_dump_stop", "_dump_step", "_set_init_iter",
                                                  "_dump_set_dynamic")})  # fmt: skip
    modules: dict[str, Any] = {
        "mindspore": SimpleNamespace(get_context=context.__getitem__, context=context,
                                     runtime=SimpleNamespace(synchronize=called("synchronize"))),
        "mindspore._c_expression": c,
        "mindspore.communication": SimpleNamespace(GlobalComm=SimpleNamespace(INITED=False), get_rank=lambda: 3),
        "mindspore.graph.api": None,
        "mindspore.common.api": SimpleNamespace(function_phases={}, cells_compile_cache={}, ms_compile_cache=set()),
    }  # fmt: skip
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield made
    for name in VARIABLES:  # the tests set them, too
        os.environ.pop(name, None)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ascend") / "dump"


def variables() -> dict[str, str]:
    return {n: os.environ[n] for n in VARIABLES if n in os.environ}


@pytest.mark.filterwarnings("ignore:Probe")
@pytest.mark.parametrize(
    ("level", "backend", "options", "acl"),
    [
        ("O2", None, {}, True),
        ("O2", None, {"iterations": 3}, True),
        ("O2", None, {"kernels": "Default/x-op1"}, False),
        ("O2", "ge", {}, True),
        ("O0", None, {}, False),
        (None, None, {}, False),
    ],
)
def test_variables_and_files(
    calls: list[Any], folder: Path, level: Any, backend: Any, options: Any, acl: bool
) -> None:
    sys.modules["mindspore"].context["jit_level"] = level
    name = "kernel_graph_dump.json" if level == "O2" else "kernel_kbyk_dump.json"
    os.environ["MS_ACL_DUMP_CFG_PATH"] = "/before.json"
    with kernels.dump(path=str(folder), backend=backend, manual_steps=True, **options) as run:
        during = variables()
        run.step()
    file = str(folder / name)
    assert json.loads(Path(file).read_text())["common_dump_settings"]["path"] == str(folder)
    assert during == {
        "MINDSPORE_DUMP_CONFIG": file,
        **({"MS_ACL_DUMP_CFG_PATH": file} if acl else {}),
        **({"ENABLE_MS_GE_DUMP": "1"} if backend == "ge" else {}),
    }
    assert variables() == {"MS_ACL_DUMP_CFG_PATH": "/before.json"}
    assert calls == [("_dump_set_dynamic",), ("_set_init_iter", 0), ("_dump_start",), ("_dump_step", 1),
                     ("synchronize",), ("_dump_stop",)]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Probe")
def test_a_version_without_the_switches(
    calls: list[Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mindspore._c_expression", ModuleType("c"))
    with kernels.dump(path=str(folder)) as run:
        run.start()
        with pytest.raises(UsageError, match="manual_steps"):
            run.step()
        with pytest.raises(UsageError, match="not over yet"):
            _ = run.outcome
    assert {c[0] for c in calls} == {"synchronize"}


@pytest.mark.filterwarnings("ignore:Probe")
def test_a_switch_that_fails_does_not_end_the_run(calls: list[Any], folder: Path) -> None:
    def broken() -> None:
        raise RuntimeError("no device")

    sys.modules["mindspore._c_expression"]._dump_stop = broken  # type: ignore[attr-defined]
    with kernels.dump(path=str(folder)) as run:
        pass
    assert "_dump_stop of this MindSpore failed: no device" in run.outcome.notes


def test_too_late(calls: list[Any], folder: Path) -> None:
    sys.modules["mindspore.communication"].GlobalComm.INITED = True  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"init\(\) was called already"), kernels.dump(path=str(folder)):
        pass
    sys.modules["mindspore.common.api"].cells_compile_cache[1] = {"train.1795.2.0."}  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"already \(train\)"), kernels.dump(path=str(folder)):
        pass
    assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "backend", "says"),
    [
        ("GRAPH_OP_RUN", None, "GRAPH_OP_RUN: is 1"),
        ("ENABLE_MS_GE_DUMP", "ascend-o2", "means the GE dump"),
        ("MINDSPORE_DUMP_CONFIG", None, "is set already"),
    ],
)
def test_variables_that_are_in_the_way(
    calls: list[Any], folder: Path, name: str, backend: Any, says: str
) -> None:
    os.environ[name] = "1"
    with pytest.raises(ConfigError, match=says), kernels.dump(path=str(folder), backend=backend):
        pass
    assert not folder.exists()


@pytest.mark.filterwarnings("ignore:Probe")
def test_one_at_a_time_and_the_scheduler_dumps_nothing(calls: list[Any], folder: Path) -> None:
    open_already = pytest.raises(UsageError, match="is open in this process already")
    with kernels.dump(path=str(folder)), open_already, kernels.dump(path=str(folder)):
        pass
    calls.clear()
    os.environ["MS_ROLE"] = "MS_SCHED"
    with kernels.dump(path=str(folder / "sched")) as run:
        assert "MINDSPORE_DUMP_CONFIG" not in os.environ
    assert calls == []
    assert run.outcome.files == 0
    assert not (folder / "sched").exists()


@pytest.mark.filterwarnings("ignore:Probe")
def test_o2_tree_is_looked_through(calls: list[Any], folder: Path) -> None:
    kernel = "Conv2D.Default_net_conv-Conv2d_Conv2D-op12.2.7.161243956333802"
    wanted = ["Default/net/conv-Conv2d/Conv2D-op12", "name-regex(Default/net/.*)", "name-regex(Other/.*)"]
    with kernels.dump(path=str(folder), kernels=wanted) as run:
        here = folder / "0" / "20260101000000" / "0" / "model" / "1" / "4"
        here.mkdir(parents=True)
        (here / kernel).write_bytes(b"123")
        (here / "12345678901234567890123456789012").write_bytes(b"4")
        (here / "mapping.csv").write_text(
            f"12345678901234567890123456789012,{kernel}.input.0.ND.float16.npy\n"
        )
    out = run.outcome
    assert (out.files, out.size, out.iterations, out.kernels) == (2, 4, (4,), 1)
    assert [n.kernel for n in out.never_ran] == ["name-regex(Other/.*)"]
