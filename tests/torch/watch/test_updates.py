"""What task `watch` sees of real loops of torch: clipping, accumulation, scalers, several optimizers, DDP and FSDP."""

from __future__ import annotations

import copy
import gc
import json
import warnings
import weakref
from collections import UserDict
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from contract_reload import Job
from contract_watch import rows_of
from dumping import write_config
from framework import Framework
from launching import launch
from probe_format.watch import WatchFile, watch_files
from probe_torch import PrecisionDebugger
from torch import nn
from torch.utils._pytree import tree_map_only


def watched(folder: Path, **keys: Any) -> PrecisionDebugger:
    return PrecisionDebugger(dump_path=folder, task="watch", **keys)


def file_in(folder: Path) -> WatchFile:
    (file,) = watch_files(folder)
    assert (file.faults, file.damage) == ([], [])
    return file


def gradients(row: dict[tuple[str, str], float | None]) -> dict[str, float | None]:
    return {name: norm for (kind, name), norm in row.items() if kind == "gradients"}


def test_accumulated_and_clipped_also_by_the_optimizers_own_hook(tmp_path: Path) -> None:
    net = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def clip(*_: object) -> None:
        nn.utils.clip_grad_norm_(net.parameters(), 0.01)

    optimizer.register_step_pre_hook(clip)
    with watched(tmp_path) as debugger:
        for _ in range(2):
            debugger.start(net)
            for _ in range(4):
                net(torch.randn(2, 3)).sum().backward()
            debugger.stop()
            optimizer.step()
            debugger.step()
    for row in rows_of(file_in(tmp_path)):
        assert sum((norm or 0.0) ** 2 for norm in gradients(row).values()) ** 0.5 == pytest.approx(
            0.01, rel=1e-3
        )


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaler_unscales_and_skips(fused: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    twin = copy.deepcopy(net)
    optimizer = torch.optim.AdamW(net.parameters(), 0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    truth = []
    with watched(tmp_path, when=["non_finite", "norm(optimizer_grad) > 1e9"]) as debugger:
        for i in range(3):
            x = torch.randn(2, 3) * (float("inf") if i == 1 else 1.0)
            twin.load_state_dict(net.state_dict())
            twin.zero_grad()
            twin(x).sum().backward()
            truth.append({n: float(p.grad.norm()) for n, p in twin.named_parameters() if p.grad is not None})
            with debugger.one_step(net):
                optimizer.zero_grad()
                scaler.scale(net(x).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
    file = file_in(tmp_path)
    first, skipped, last = map(gradients, rows_of(file))
    assert first == pytest.approx(truth[0], rel=1e-5)
    assert set(skipped.values()) == {None}
    assert file.triggers == []
    assert last == pytest.approx(truth[2], rel=1e-5)
    assert [row.skipped for row in file.rows] == [0, 1, 0]


def test_optimizers_that_take_turns_and_parameters_of_nobody(tmp_path: Path) -> None:
    one, two = nn.Linear(2, 2), nn.Linear(2, 2)
    lonely = nn.Parameter(torch.ones(3))
    first = torch.optim.SGD(one.parameters(), 0.1, momentum=0.9)
    second = torch.optim.Adam([{"params": two.parameters()}, {"params": [lonely]}])
    with watched(tmp_path, moments=True) as debugger:
        for i in range(4):
            with debugger.one_step([one, two]):
                net, optimizer = ((one, first), (two, second))[i % 2]
                loss = net(torch.ones(1, 2)).sum() + lonely.sum()
                loss.backward()
                optimizer.step()
    file = file_in(tmp_path)
    assert {c.name for c in file.columns if c.kind == "gradients"} == {
        "0.weight", "0.bias", "1.weight", "1.bias", "Adam.1.0",
    }  # fmt: skip
    rows = rows_of(file)
    assert (rows[0]["weights", "0.weight"] is None, rows[1]["weights", "0.weight"] is None) == (False, True)
    assert rows[2]["moments", "0.weight.momentum_buffer"] is not None
    assert rows[3]["moments", "Adam.1.0.exp_avg"] is not None


def test_a_planted_nan_is_counted(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with watched(tmp_path, updates=True) as debugger:
        for i in range(3):
            with debugger.one_step(net):
                net(torch.ones(2, 3)).sum().backward()
                if i == 1:
                    assert net[0].weight.grad is not None
                    net[0].weight.grad[0, :2] = torch.tensor([float("nan"), float("inf")])
                optimizer.step()
                optimizer.zero_grad()
    file = file_in(tmp_path)
    named = [
        {file.columns[c].kind + " " + file.columns[c].name: n for c, n in row.bad.items()}
        for row in file.rows
    ]
    assert named[:2] == [{}, {"gradients 0.weight": (1, 1), "updates 0.weight": (1, 1)}]
    assert named[2]["weights 0.weight"] == (1, 1)
    assert [file.bad(row) for row in file.rows[:2]] == [0, 2]


def test_outputs_of_chosen_modules(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.LSTM(4, 5), nn.Identity())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    xs = [torch.randn(2, 3) for _ in range(2)]
    truth = [net[0](x).norm().item() for x in xs]
    with pytest.warns(RuntimeWarning, match=r"'Module.2.Identiti' matched no module. Nearest: Module"):
        debugger = watched(tmp_path, list=["0.Linear", "1.LSTM", "Module.2.Identiti"])
        debugger.start(net)
    for x in xs:
        out, _ = net[1](net[0](x))
        out.sum().backward()
    debugger.stop()
    optimizer.step()
    net(xs[0])
    debugger.step()
    debugger.close()
    (row,) = rows_of(file_in(tmp_path))
    found = {name: norm for (kind, name), norm in row.items() if kind == "activations"}
    assert found.keys() == {"0.output.0", "1.output.0", "1.output.1.0", "1.output.1.1"}
    assert found["0.output.0"] == pytest.approx(max(truth), rel=1e-5)


def test_outputs_in_containers_of_own_classes(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return UserDict({"x": x, "left": object()})

    net = nn.Sequential(Net())
    with pytest.warns(RuntimeWarning, match=r"a part of what Module\.0\.Net returns: not watched\. object: "):
        debugger = watched(tmp_path, list=["0.Net"])
        with debugger.one_step(net):
            net[0](torch.ones(4))
        debugger.close()
    file = file_in(tmp_path)
    assert rows_of(file)[0] == {("activations", "0.output.x"): 2.0}
    assert file.unseen == [("a part of what Module.0.Net returns", "object: no encoding for this type")]


class Wrapped(torch.Tensor):
    """A tensor of one or several parts, which refuses the operations that make norms."""

    parts: dict[str, torch.Tensor]

    @staticmethod
    def __new__(cls, **parts: torch.Tensor) -> Wrapped:
        made = torch.Tensor._make_wrapper_subclass(cls, parts["inner"].shape)
        made.parts = parts
        vars(made).update(parts)
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return list(self.parts), None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "_foreach" in func.__name__:
            raise NotImplementedError(func)
        plain = tree_map_only(cls, lambda t: t.parts["inner"], (args, kwargs or {}))
        made = func(*plain[0], **plain[1])
        if func in (torch.ops.aten.detach.default, torch.ops.aten.empty_like.default):
            return cls(**{**args[0].parts, "inner": made})
        return args[0] if func.__name__.partition(".")[0].endswith("_") else made


@pytest.mark.parametrize("parts", [("inner",), ("inner", "scale")])
def test_a_parameter_of_a_wrapper_class_costs_no_other_its_norm(
    parts: tuple[str, ...], tmp_path: Path
) -> None:
    net = nn.Linear(3, 1)
    net.w = nn.Parameter(Wrapped(**{part: torch.ones(3) for part in parts}))
    optimizer = torch.optim.SGD(net.parameters(), 0.1, foreach=False)
    said = warnings.catch_warnings(action="ignore") if parts[1:] else nullcontext()
    with said, watched(tmp_path, updates=True) as debugger, debugger.one_step(net):
        (net(torch.ones(1, 3)).sum() + (net.w * 2).sum()).backward()
        optimizer.step()
    row = rows_of(file := file_in(tmp_path))[0]
    assert row["gradients", "w"] == pytest.approx(12**0.5) and row["updates", "weight"] > 0.0
    known = [row.get((kind, "w")) for kind in ("weights", "updates")]
    assert known == pytest.approx([3**0.5, 0.12**0.5]) if not parts[1:] else known == [None, None]
    assert [what for what, _ in file.unseen] == ["weights of w"][: len(parts) - 1]


def test_nothing_is_kept_alive_and_everything_put_back(tmp_path: Path) -> None:
    call = nn.Module.__call__
    net = nn.Sequential(nn.Linear(3, 4))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with watched(tmp_path, updates=True, list=["Linear"]) as debugger:
        with debugger.one_step(net):
            net(torch.ones(1, 3)).sum().backward()
            grad = weakref.ref(net[0].weight.grad)
            optimizer.step()
            assert not optimizer._optimizer_step_pre_hooks
        optimizer.zero_grad()
        assert grad() is None
        gone = [weakref.ref(optimizer), weakref.ref(net[0].weight)]
        debugger.close()
        del optimizer, net
        gc.collect()
        assert [ref() for ref in gone] == [None, None]
    assert nn.Module.__call__ is call


def test_a_fault_of_ours_leaves_the_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("probe_torch.watch.updates.norms_of", fail)
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with (
        watched(tmp_path, max_faults=2) as debugger,
        pytest.warns(RuntimeWarning, match="met a fault while it watched"),
    ):
        for _ in range(4):
            with debugger.one_step(net):
                net(torch.ones(1, 2)).sum().backward()
                optimizer.step()
    (file,) = watch_files(tmp_path)
    assert len(file.rows) == 4
    assert len(file.faults) == 2 and "planted" in file.faults[0][1]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes(kind: str, tmp_path: Path) -> None:
    config = str(write_config(tmp_path, task="watch", level="L0", dump_path=str(tmp_path / "dump")))
    plain = launch("ranks.py", kind, "-", tmp_path / "plain")
    seen = launch("ranks.py", kind, config, tmp_path / "out")
    files = watch_files(tmp_path / "dump")
    assert [file.path.name for file in files] == ["rank0.rows", "rank1.rows"]
    for file, trace, truth in zip(files, seen, plain, strict=True):
        assert all(torch.equal(trace[k], truth[k]) for k in truth if isinstance(truth[k], torch.Tensor))
        for i, row in enumerate(rows_of(file)):
            for name, norm in gradients(row).items():
                at = f"module.{name}" if f"{i}.grad.module.{name}" in trace else name
                assert norm == pytest.approx(float(trace[f"{i}.grad.{at}"].norm()), rel=1e-4)
        assert len(file.rows) == 2


def test_settings_change_while_it_watches(framework: Framework, tmp_path: Path) -> None:
    """What the file says holds from the next step on; a broken one, and another task, change nothing."""
    job = Job(framework, tmp_path).open(task="watch", reload=True)
    optimizer = torch.optim.AdamW(job.net.parameters())

    def steps(count: int) -> None:
        for _ in range(count):
            job.start()
            optimizer.zero_grad()
            job.net(torch.ones(3, 2)).sum().backward()
            optimizer.step()
            job.end()

    steps(2)
    with pytest.warns(RuntimeWarning, match="(?s)from step 3 on: .*list"):
        job.write(task="watch", reload=True, moments=True, updates=True, list=["Linear"])
        steps(2)
    for text, why in (('{"task": ', "JSON"), (json.dumps({"task": "statistics"}), "dump_path|cannot become")):
        with pytest.warns(RuntimeWarning, match=f"(?s)the settings stay as they are.*({why})"):
            job.put(text)
            steps(1)
    with pytest.warns(RuntimeWarning, match="from step 7 on"):
        job.write(task="watch", reload=True, step=[8])
        steps(3)
    job.debugger.close()
    file = file_in(job.dump)
    few = {"gradients", "weights"}
    kinds = [
        (row.step, {kind for (kind, _), norm in found.items() if norm is not None})
        for row, found in zip(file.rows, rows_of(file), strict=True)
    ]
    many = few | {"moments", "updates", "activations"}
    assert kinds == [(0, few), (1, few), (2, few), (3, many), (4, many), (5, many), (6, many), (8, few)]
