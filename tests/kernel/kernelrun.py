"""A small MindSpore training under a kernel dump: one process each, since MindSpore reads its settings once.

``python kernelrun.py '{"case": ..., "path": ..., "options": {...}}'`` prints one line of JSON with what happened.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from probe_format.errors import ConfigError, UsageError
from probe_kernel import KernelDump, level2
from probe_kernel import mindspore as kernels
from probe_runtime.config import resolve

VARIABLES = ("MINDSPORE_DUMP_CONFIG", "MS_ACL_DUMP_CFG_PATH", "MS_DIAGNOSTIC_DATA_PATH")
with contextlib.suppress(SystemError):  # the first use of numpy's C interface fails once on a fresh 2.10
    Tensor(np.ones((2, 2), np.float32)).reshape(4, 1)


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, pad_mode="valid")
        self.fc = nn.Dense(3 * 2 * 2, 5)

    def construct(self, x: Any) -> Any:
        x = ops.relu(self.conv(x))
        return self.fc(x.reshape((x.shape[0], -1)))


def train(steps: int, after: Any = None) -> list[float]:
    """Some steps of SGD in GRAPH_MODE; the losses."""
    ms.set_seed(3)
    net = Net()
    loss = nn.WithLossCell(net, nn.CrossEntropyLoss())
    step = nn.TrainOneStepCell(loss, nn.SGD(net.trainable_params(), 0.1))
    x = Tensor(np.linspace(-1, 1, 4 * 2 * 4 * 4, dtype=np.float32).reshape(4, 2, 4, 4))
    y = Tensor(np.array([0, 1, 2, 3], np.int32))
    losses = []
    for _ in range(steps):
        losses.append(float(step(x, y).asnumpy()))
        if after is not None:
            after()
    return losses


@ms.jit
def doubled(x: Any) -> Any:
    return ops.sin(x) * 2


def variables() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in VARIABLES}


def of(run: kernels.KernelRun) -> dict[str, Any]:
    out = run.outcome
    return {
        "files": out.files, "size": out.size, "iterations": out.iterations, "kernels": out.kernels,
        "never_ran": [str(n) for n in out.never_ran], "notes": out.notes, "said": str(out), "folder": out.path,
    }  # fmt: skip


def case_train(path: str, options: dict[str, Any]) -> dict[str, Any]:
    ms.set_context(mode=ms.GRAPH_MODE)
    with kernels.dump(KernelDump(path=path, **options)) as run:
        during = variables()
        losses = train(3)
    return {**of(run), "losses": losses, "during": during}


def case_manual(path: str, options: dict[str, Any]) -> dict[str, Any]:
    ms.set_context(mode=ms.GRAPH_MODE)
    with kernels.dump(KernelDump(path=path, **options), manual_steps=True) as run:
        runs = iter(range(4))
        train(4, lambda: run.step() if next(runs) == 1 else None)
    return of(run)


def case_plain(path: str, options: dict[str, Any]) -> dict[str, Any]:
    ms.set_context(mode=ms.GRAPH_MODE)
    return {"losses": train(3)}


def case_jit(path: str, options: dict[str, Any]) -> dict[str, Any]:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ops.cos(Tensor([1.0]))  # eager operators compile nothing
    with kernels.dump(path=path, **options) as run:
        doubled(Tensor(np.array([0.5, 1.0], np.float32)))
    return of(run)


def case_eager(path: str, options: dict[str, Any]) -> dict[str, Any]:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    with kernels.dump(path=path) as run:
        ops.cos(Tensor([1.0]))
    return of(run)


def case_late(path: str, options: dict[str, Any]) -> dict[str, Any]:
    """A graph first, in each of the ways in which there may be one."""
    if options["first"] == "jit":
        doubled(Tensor([1.0]))
    elif options["first"] == "optimizer":
        net = Net()
        nn.SGD(net.trainable_params(), 0.1)(tuple(ops.zeros_like(p) for p in net.trainable_params()))
    else:
        ms.set_context(mode=ms.GRAPH_MODE)
        train(1)
        if options["first"] == "forgotten":
            ms.ms_memory_recycle()
    with kernels.dump(path=path):
        raise AssertionError("not refused")


def case_wrong(path: str, options: dict[str, Any]) -> dict[str, Any]:
    """Every mis-set configuration is refused before anything is compiled, so a right one still works after."""
    told = []
    for wrong in options["wrong"]:
        try:
            with kernels.dump(**{"path": path, **wrong}):
                told.append(["not refused"])
        except ConfigError as e:
            told.append([f"{p.where}: {p.what} {p.remedy}" for p in e.problems])
    nothing = not os.path.exists(path)
    return {"told": told, "nothing": nothing, **case_train(path, {})}


def case_raise(path: str, options: dict[str, Any]) -> dict[str, Any]:
    os.environ["MS_ACL_DUMP_CFG_PATH"] = "/before.json"
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        with kernels.dump(path=path) as run:
            train(1)
            raise KeyError("the user's own")
    except KeyError:
        return {**of(run), "after": variables()}
    raise AssertionError("swallowed")


def case_set(path: str, options: dict[str, Any]) -> dict[str, Any]:
    os.environ["MINDSPORE_DUMP_CONFIG"] = options["file"]
    with kernels.dump(path=path):
        raise AssertionError("not refused")


def case_diagnostic(path: str, options: dict[str, Any]) -> dict[str, Any]:
    ms.set_context(mode=ms.GRAPH_MODE)
    with kernels.dump(diagnostic_data_path=path, iterations=0) as run:
        during = variables()
        train(1)
    return {**of(run), "during": during, "after": variables()}


def case_level2(path: str, options: dict[str, Any]) -> dict[str, Any]:
    ms.set_context(mode=ms.GRAPH_MODE)
    run = level2.MindSporeKernels(resolve({"dump_path": path, "level": "L2", "task": "tensor", **options}))
    run.start(0)
    losses = train(3, lambda: (run.stop(), run.step(), run.start()))
    run.stop()
    run.close()
    assert run.run is not None
    return {**of(run.run), "losses": losses}


def case_debugger(path: str, options: dict[str, Any]) -> dict[str, Any]:
    """Step 1 alone is wanted: the settings must be there before step 0 compiles."""
    from probe_mindspore import PrecisionDebugger

    ms.set_context(mode=ms.GRAPH_MODE)
    config = f"{path}.json"
    with open(config, "w") as file:
        json.dump({"dump_path": path, "level": "L2", "task": "tensor", **options}, file)
    debugger = PrecisionDebugger(config)
    debugger.start()

    def after() -> None:
        debugger.stop()
        debugger.step()
        debugger.start()

    losses = train(3, after)
    debugger.close()
    return {"losses": losses}


def case_ranks(path: str, options: dict[str, Any]) -> dict[str, Any]:
    from mindspore.communication import get_rank, init

    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    with kernels.dump(path=path, **options) as run:
        init()
        train(2)
    return {**of(run), "rank": get_rank()}


def main() -> None:
    given = json.loads(sys.argv[1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = globals()[f"case_{given['case']}"](given["path"], given.get("options", {}))
        except (ConfigError, UsageError) as e:
            result = {"error": f"{type(e).__name__}: {e}"}
    result["warned"] = [str(w.message) for w in caught if "Probe" in str(w.message)]
    result.setdefault("after", variables())
    text = json.dumps(result)
    if given.get("answer"):
        with open(f"{given['answer']}.{os.environ.get('RANK_ID', '0')}", "w") as file:
            file.write(text)
    print("RESULT" + text, flush=True)


if __name__ == "__main__":
    main()
