"""A plan says what the dump then writes: held against the files of real dumps."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from contract_plan import *  # noqa: F403  the tests and fixtures that both frameworks have
from dumping import capture, report
from planned import Written, written
from probe_format.errors import UsageError
from probe_torch import PrecisionDebugger, demo, plan, seed_all
from probe_torch.demo_model import Gpt, batches
from probe_torch.planning.planned_leaf import PlannedLeaf
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

CONFIGS: dict[str, dict[str, Any]] = {
    **{
        f"{level} {task}": {"level": level, "task": task}
        for level in ("L0", "L1", "mix")
        for task in ("statistics", "tensor", "structure")
    },
    "forward": {"task": "tensor", "data_mode": ["forward"]},
    "backward": {"task": "tensor", "data_mode": ["backward"]},
    "input": {"level": "L0", "task": "tensor", "data_mode": ["input"]},
    "output": {"task": "statistics", "data_mode": ["output"]},
    "list": {"task": "tensor", "list": ["qkv", "layer_norm"]},
    "scope": {"scope": ["Module.blocks.0.Block.forward.0", "Module.blocks.0.Block.forward.0"]},
    "tensor_list": {"task": "statistics", "tensor_list": ["linear"]},
    "md5": {"summary_mode": "md5"},
    "xor": {"summary_mode": "xor"},
    "zeros": {"zero_count": True},
    "sketch": {"sketch": True},
    "views": {"views": True, "task": "tensor"},
    "unshared": {"task": "tensor", "share": False},
    "later": {"task": "tensor", "async_dump": True},
    "short": {"extra_info": False},
}


def dumped(folder: Path, keys: dict[str, Any], step: Callable[[Any], object]) -> Written:
    """What a dump of the second of two steps writes. step: makes one, with the debugger."""
    with PrecisionDebugger(**keys, dump_path=str(folder / "dump"), step=[1]) as debugger:
        for _ in range(2):
            step(debugger)
    return written(folder / "dump")


def training(
    model: nn.Module, optimizer: torch.optim.Optimizer, *batch: Any, accumulated: bool = False
) -> Callable[[Any], object]:
    """What makes a step on a batch, with a debugger. accumulated: the gradients of all steps are added."""

    def step(debugger: Any) -> None:
        with debugger.one_step(model):
            model(*batch).backward()
            optimizer.step()
            if not accumulated:
                optimizer.zero_grad()

    return step


def close(planned: int, real: int) -> bool:
    """Within five percent."""
    return abs(planned - real) <= 0.05 * real


def added_up(folder: Path) -> int:
    """How many files hold a gradient that Probe adds up for a module, and that autograd adds up for the call before.

    A plan does not know that these are equal.
    """
    return sum(
        path.stat().st_nlink > 1 for path in folder.rglob("Module.blocks.0.Block.backward.0.output.0.pt")
    )


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.filterwarnings("ignore:Probe. argument:RuntimeWarning")
def test_the_plan_is_what_is_written(name: str, tmp_path: Path) -> None:
    """No two tensors have equal values by chance: no optimizer counts steps, and not all positions are looked up."""
    keys = {"level": "mix", **CONFIGS[name]}
    torch.manual_seed(0)
    model, window = Gpt(1, 32, length=32), next(batches(2, 24))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    planned = plan(model, {**keys, "dump_path": str(tmp_path / "dump")}, window, optimizer=optimizer)
    real = dumped(tmp_path, keys, training(model, optimizer, window))
    said = report(tmp_path / "dump", 1)
    assert (planned.records, planned.tensors) == (
        said["records"],
        said["counts"]["recorded"].get("tensors", 0),
    )
    assert (planned.files, planned.documents) == (real.names, real.documents)
    assert planned.written == real.files + added_up(tmp_path / "dump")
    assert close(planned.bytes, real.bytes) and close(planned.bytes_unshared, real.bytes_unshared)
    assert close(planned.document_bytes, real.document_bytes)
    file_bytes = real.bytes_unshared - real.document_bytes
    assert planned.file_bytes_unshared == file_bytes, "a tensor's file is as large as it is"
    assert not planned.problems and not planned.notes


# Not moe, whose routes depend on values.
CASES = [(case, "none") for case in zoo.CASES if case != "moe"] + [
    ("gpt", "non_reentrant"),
    ("gpt", "reentrant"),
]


@pytest.mark.parametrize(("case", "rerun"), CASES)
def test_small_networks(case: str, rerun: str, tmp_path: Path) -> None:
    chosen = zoo.CASES[case]
    keys = {"level": "mix", "task": "tensor"}
    with zoo.fixed():
        model, optimizer = zoo.build(chosen, zoo.Variant(rerun=rerun))
        batch = chosen.batch()
        planned = plan(model, {**keys, "dump_path": str(tmp_path / "dump")}, *batch, optimizer=optimizer)
        real = dumped(tmp_path, keys, training(model, optimizer, *batch))
    assert planned.records == report(tmp_path / "dump", 1)["records"]
    assert planned.files == real.names
    # Different tensors have equal values, as the step counts of an optimizer: those are fewer files than planned.
    assert real.files <= planned.written
    # These tensors are so small that what surrounds the numbers in a file counts: a few files less are some percent.
    assert close(planned.bytes, real.bytes + 1200 * (planned.written - real.files))
    assert close(planned.bytes_unshared, real.bytes_unshared)


def test_equal_bytes_are_fewer_files_than_planned(tmp_path: Path) -> None:
    keys = {"level": "mix", "task": "tensor"}
    torch.manual_seed(0)
    model, window = Gpt(1, 32, length=32), next(batches(2, 32))
    optimizer = torch.optim.AdamW(model.parameters())

    planned = plan(model, {**keys, "dump_path": str(tmp_path / "dump")}, window, optimizer=optimizer)
    real = dumped(tmp_path, keys, training(model, optimizer, window, accumulated=True))
    assert planned.files == real.names and close(planned.bytes_unshared, real.bytes_unshared)
    assert real.files < planned.written and close(planned.bytes, real.bytes)
    contents = {path.stat().st_ino: path.read_bytes() for path in (tmp_path / "dump").rglob("*.pt")}
    assert len(contents) == len(set(contents.values())) == real.files


def test_the_demo(tmp_path: Path) -> None:
    """The demo writes two steps; the plan is for one."""
    demo.train(tmp_path / "dump", steps=5, dumped=(2, 3), layers=2, width=64)
    seed_all(1234)
    model = Gpt(2, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    keys = {"task": "statistics", "level": "mix", "dump_path": str(tmp_path / "other"), "step": [2, 3]}
    planned = plan(model, keys, next(batches()), optimizer=optimizer)
    assert planned.steps == 2 and planned.total is not None
    assert close(2 * planned.bytes, written(tmp_path / "dump").bytes)


class Shared(Mapping[str, Any]):
    """Inputs of a class whose copies share what they hold."""

    def __init__(self, **held: Any) -> None:
        self.held = held

    def __getitem__(self, key: str) -> Any:
        return self.held[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.held[key] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


def test_inputs_of_a_class_whose_copies_share_what_they_hold_stay(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, batch: Shared) -> Tensor:
            return self.layer(batch["x"]).sum() + sum(t.sum() for t in batch["more"])

    x, more = torch.ones(2, 3), [torch.ones(4)]
    batch = Shared(x=x, more=more)
    planned = plan(Net(), {"level": "L0", "dump_path": str(tmp_path / "d")}, batch)
    assert planned.records >= 2 and [*batch.held] == ["x", "more"]
    assert batch["x"] is x and batch["more"] is more and type(more[0]) is Tensor


def test_nothing_is_changed(tmp_path: Path) -> None:
    model, window = Gpt(1, 16, length=8), next(batches(1, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    model(window).backward()
    optimizer.step()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    held = {id(t) for t in (*model.parameters(), *model.buffers())}
    moments = [{k: v.clone() for k, v in s.items()} for s in optimizer.state.values()]
    relu, call = torch.relu, nn.Module.__call__
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    plan(
        model,
        {"level": "mix", "task": "tensor", "dump_path": str(tmp_path / "d")},
        window,
        optimizer=optimizer,
    )
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert all(
        torch.equal(p.grad, g) for p, g in zip(model.parameters(), grads, strict=True) if p.grad is not None
    )
    assert {id(t) for t in (*model.parameters(), *model.buffers())} == held
    for now, then in zip(optimizer.state.values(), moments, strict=True):
        assert all(torch.equal(now[k], then[k]) for k in then)
    assert torch.relu is relu and nn.Module.__call__ is call
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]
    assert not list(tmp_path.iterdir()), "nothing is written where the dump goes"


def test_a_model_on_meta_is_planned_as_a_real_one(tmp_path: Path) -> None:
    keys = {"level": "mix", "task": "tensor", "dump_path": str(tmp_path / "d")}
    model, window = Gpt(1, 16, length=8), next(batches(1, 8))
    with torch.device("meta"):
        ghost = Gpt(1, 16, length=8)
    a, b = plan(model, keys, window), plan(ghost, keys, window.to("meta"))
    assert (a.records, a.files, a.written, a.bytes) == (b.records, b.files, b.written, b.bytes)


def test_without_gradients_there_is_no_backward(tmp_path: Path) -> None:
    keys = {"level": "L0", "dump_path": str(tmp_path / "d")}
    with torch.no_grad():
        planned = plan(nn.Sequential(nn.Linear(4, 4)), keys, torch.randn(2, 4))
    assert planned.records == 1
    assert "no backward pass" in planned.notes[0] and planned.notes[0] in str(planned)


@pytest.mark.parametrize("made_within", [False, True])
def test_inference_is_planned_as_it_is_dumped(made_within: bool, tmp_path: Path) -> None:
    """Also for a model and inputs made in inference mode, whose tensors have no version."""
    keys = {"level": "mix", "task": "tensor", "dump_path": str(tmp_path / "dump")}
    torch.manual_seed(0)
    with torch.inference_mode(made_within):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
        x = torch.randn(2, 4)
    with torch.inference_mode():
        planned = plan(model, keys, x)
        capture(tmp_path, lambda: model(x), model, level="mix", task="tensor")
    real = written(tmp_path / "dump")
    assert planned.records == report(tmp_path / "dump")["records"]
    assert (planned.files, planned.written) == (real.names, real.files)
    assert planned.file_bytes == real.bytes - real.document_bytes


def test_a_disk_that_is_too_small_is_told(tmp_path: Path) -> None:
    with torch.device("meta"):
        model, x = nn.Sequential(nn.Linear(1 << 20, 1 << 20)), torch.empty(1, 1 << 20)
    keys = {"level": "L0", "task": "tensor", "dump_path": str(tmp_path / "deep" / "d")}
    planned = plan(model, keys, x)
    assert planned.bytes > 8 << 40
    assert "are free" in planned.problems[0] and str(tmp_path) in planned.problems[0]
    assert not list(tmp_path.iterdir())


def test_compiled_regions_are_planned_as_they_are_dumped_with_eager(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.GELU()))
    x, keys = torch.randn(2, 4), {"level": "mix", "task": "tensor", "compiled": "eager"}
    plain = plan(net, {**keys, "dump_path": str(tmp_path / "dump")}, x)
    for model in (torch.compile(net, backend="eager"), net):
        if model is net:
            net[1].compile(backend="eager")
        found = plan(model, {**keys, "dump_path": str(tmp_path / "dump")}, x)  # type: ignore[arg-type]
        assert (found.records, found.files, found.written) == (plain.records, plain.files, plain.written)
        assert "as if torch.compile were not there" in str(found)


@pytest.mark.usefixtures("one_process")
def test_wrappers_of_data_parallel(tmp_path: Path) -> None:
    """One that hands on is planned as it is dumped, under its own names; one that shards is refused."""
    x = torch.randn(2, 4)
    inner = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), inner))
    planned = plan(model, {"level": "mix", "task": "tensor", "dump_path": str(tmp_path / "dump")}, x)
    with PrecisionDebugger(level="mix", task="tensor", dump_path=str(tmp_path / "dump")) as debugger:
        debugger.start(model)
        model(x).sum().backward()
        debugger.stop()
    said = report(tmp_path / "dump", 0, 0)
    assert (said["records"], said["counts"]["recorded"]["tensors"]) == (
        planned.records + 2,
        planned.tensors + 4,
    ), "sum"
    sharded = fully_shard(nn.Sequential(nn.Linear(4, 4)), mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(UsageError, match="sharded by FSDP"):
        plan(sharded, {"level": "L0", "dump_path": str(tmp_path / "d")}, x)


class Keeps(nn.Module):
    """Keeps tensors and a generator that are neither parameters nor buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.scale, self.table = torch.randn(4), torch.eye(2).to_sparse()
        self.chance = torch.Generator("cpu").manual_seed(1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sparse.mm(self.table, self.fc(x) * self.scale)
        return y + torch.randn(2, 4, generator=self.chance)


def test_a_model_that_keeps_other_tensors(tmp_path: Path) -> None:
    model, x = Keeps(), torch.randn(2, 4)
    state = model.chance.get_state()
    planned = plan(model, {"level": "mix", "task": "tensor", "dump_path": str(tmp_path / "d")}, x)
    assert planned.records and torch.equal(model.chance.get_state(), state)
    assert type(model.scale) is Tensor
    capture(tmp_path, lambda: model(x).sum().backward(), model, level="mix", task="tensor")
    assert report(tmp_path / "dump")["records"] == planned.records + 2, "sum(), forward and backward"


class Asks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc(x)
        return y * 2 if y.sum().item() > 0 else y


class Locked(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 4)
        self.lock = threading.Lock()


def test_models_that_cannot_be_planned_are_named(tmp_path: Path) -> None:
    x, keys = torch.randn(2, 4), {"level": "mix", "dump_path": str(tmp_path / "d")}
    for model, said in (
        (
            Asks(),
            r"no numbers, and .*test_plan\.py:\d+ `return y \* 2 if y\.sum\(\)\.item\(\) > 0 else y` asks",
        ),
        (Locked(), "cannot be copied"),
        (nn.LazyLinear(4), "not initialised"),
    ):
        with pytest.raises(UsageError, match=said):
            plan(model, keys, x)


def test_the_line_of_a_module_that_was_loaded_again_is_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    for word in ("first", "second try"):
        file.write_text(f"def asks(x):\n    return x.item()  # {word}\n")
        made: dict[str, Any] = {"__name__": "model"}
        exec(compile(file.read_text(), str(file), "exec"), made)

        class Model(nn.Module):
            def forward(self, x: torch.Tensor, asks: Any = made["asks"]) -> Any:
                return asks(x)

        with pytest.raises(UsageError, match=word):
            plan(Model(), {"level": "mix", "dump_path": str(tmp_path / "d")}, torch.ones(1))


@pytest.mark.filterwarnings("ignore:Probe met:RuntimeWarning")
def test_what_could_not_be_followed_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("not today")

    monkeypatch.setattr(PlannedLeaf, "tensor", fail)
    keys = {"level": "L0", "dump_path": str(tmp_path / "d")}
    (note,) = plan(nn.Sequential(nn.Linear(4, 4)), keys, torch.randn(2, 4)).notes
    assert "could not be followed (ValueError: not today)" in note
