"""What a user calls, option by option, on real steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from contract_debugger import *  # noqa: F403  the tests that both frameworks have
from dumping import capture, dumped, leaves, opened, rank_dir, records, report
from probe_format.errors import UsageError
from probe_torch import PrecisionDebugger
from torch import add as early_add
from torch import conv1d as early_conv1d
from torch import distributed as dist
from torch import nn

KEPT = (torch.add, "kept")  # out of reach of the search for names bound early


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))


def train(model: nn.Module) -> None:
    model(torch.ones(2, 3)).sum().backward()


def test_module_dump_names_one_module_and_hides_its_inside(tmp_path: Path) -> None:
    model = net()
    with opened(tmp_path, level="mix") as debugger:
        debugger.module_dump(model, "MyNet")
        with debugger.one_step(model):
            train(model)
            debugger.module_dump_end()
    data = records(tmp_path / "dump")
    assert "Module.MyNet.Sequential.forward.0" in data and "Module.MyNet.Sequential.backward.0" in data
    assert not any(".Linear.forward" in n or n.startswith("Functional.linear") for n in data)
    assert report(tmp_path / "dump")["counts"]["left_out"]["inside module_dump"] > 0


def test_tokens_that_vllm_scheduled_are_taken_and_a_warning_says_that_they_choose_nothing(
    tmp_path: Path,
) -> None:
    model = net()
    with opened(tmp_path, level="L0") as debugger:
        with pytest.warns(RuntimeWarning, match="scheduled_tokens.* has no effect.*token_range"):
            debugger.start(model, scheduled_tokens={"request": 1})
        train(model)
        debugger.step()
    assert "Module.0.Linear.forward.0" in records(tmp_path / "dump")


def test_a_listed_function_goes_by_the_name_it_was_registered_under(tmp_path: Path) -> None:
    """The names are those that msprobe 26.2 writes; the last registration counts, and restoring brings the list's."""
    x = torch.ones(2, 2)

    def calls() -> None:
        torch.matmul(x, x), torch.add(x, x), early_add(x, x), x.matmul(x), F.linear(x, x), x + x
        torch.conv1d(x[None], x[None]), F.conv1d(x[None], x[None]), early_conv1d(x[None], x[None])

    with opened(tmp_path, level="L1") as debugger:
        debugger.register_custom_api(torch, "matmul")
        debugger.register_custom_api(torch, "add", "First")
        debugger.register_custom_api(torch, "conv1d", "Other")
        with debugger.one_step():
            debugger.register_custom_api(torch, "add", "My")  # also while collecting
            debugger.register_custom_api(F, "linear", "Mine")
            calls()
            for owner, name in ((torch, "matmul"), (torch, "add"), (F, "linear"), (torch, "conv1d")):
                debugger.restore_custom_api(owner, name)
            calls()
    before = "torch.matmul.0 My.add.0 My.add.1 Tensor.matmul.0 Mine.linear.0 Tensor.__add__.0"
    before += " Other.conv1d.0 Functional.conv1d.0 Functional.conv1d.1"  # bound early: by the first name in the list
    after = "Torch.matmul.0 Torch.add.0 Torch.add.1 Tensor.matmul.1 Functional.linear.0 Tensor.__add__.1"
    after += " Torch.conv1d.0 Functional.conv1d.2 Functional.conv1d.3"
    assert [n.removesuffix(".forward") for n in records(tmp_path / "dump")] == f"{before} {after}".split()
    assert torch.add is KEPT[0] and early_add is KEPT[0]


def test_a_registered_function_is_what_the_list_says_it_is(tmp_path: Path) -> None:
    """A composite one shows what it calls, under whatever name."""
    with opened(tmp_path, level="L1") as debugger:
        debugger.register_custom_api(torch, "unravel_index", "My")
        with debugger.one_step():
            torch.unravel_index(torch.tensor([5]), (2, 3))
    names = list(records(tmp_path / "dump"))
    assert "My.unravel_index.0.forward" in names and len(names) > 1


def test_a_collective_is_one_under_whatever_name(one_process: None, tmp_path: Path) -> None:
    """What only receives is null on input, and all arguments are its output, when it is complete."""
    with opened(tmp_path, level="L1") as debugger:
        debugger.register_custom_api(dist, "all_gather_into_tensor", "My")
        with debugger.one_step():
            out, given = torch.zeros(2), torch.full((2,), 3.0)
            dist.all_gather_into_tensor(out, given, async_op=True).wait()
    record = records(tmp_path / "dump", rank=0)["My.all_gather_into_tensor.0.forward"]
    assert record["input_args"][0] is None
    assert [t["Max"] for t in record["output"][:2]] == [3.0, 3.0]


def test_two_stretches_of_one_step_and_gradients_after_stop(tmp_path: Path) -> None:
    model = net()
    with opened(tmp_path, level="mix") as debugger:
        debugger.start(model)
        one = model(torch.ones(1, 3)).sum()
        debugger.stop()
        model(torch.ones(1, 3))  # not recorded
        first = set(records(tmp_path / "dump"))
        debugger.start(model)
        two = model(torch.ones(1, 3)).sum()
        debugger.stop()
        (one + two).backward()
        debugger.step()
    data = records(tmp_path / "dump")
    assert first < set(data)
    assert {f"Module.0.Linear.{d}.{i}" for d in ("forward", "backward") for i in (0, 1)} <= set(data)
    assert "Module.0.Linear.forward.2" not in data


def test_views_are_a_second_list(tmp_path: Path) -> None:
    names = {}
    for views in (False, True):
        with dumped(tmp_path / str(views), level="L1", views=views):
            torch.sin(torch.zeros(4).view(2, 2)[0].contiguous())
        names[views] = set(records(tmp_path / str(views) / "dump"))
    assert names[False] == {"Torch.sin.0.forward"}
    assert {"Tensor.view.0.forward", "Tensor.__getitem__.0.forward", "Torch.zeros.0.forward"} <= names[True]


def test_a_list_of_models_puts_the_index_first(tmp_path: Path) -> None:
    models = [net(), net()]
    with dumped(tmp_path, models, level="L0"):
        for model in models:
            train(model)
    names = records(tmp_path / "dump")
    assert {"Module.0.0.Linear.forward.0", "Module.1.2.Linear.parameters_grad"} <= set(names)


def test_the_users_hooks_run_in_their_order_and_see_what_they_always_do(tmp_path: Path) -> None:
    def watched() -> tuple[nn.Module, list[Any]]:
        model, seen = net(), []
        model[0].register_forward_pre_hook(lambda m, a: seen.append("pre") or (a[0] * 2,))
        model[0].register_forward_hook(lambda m, a, o: seen.append(("post", float(a[0].sum()))) or o + 1)
        model[0].register_full_backward_hook(lambda m, gi, go: seen.append(("back", float(go[0].sum()))))
        return model, seen

    plain, expected = watched()
    train(plain)
    model, seen = watched()
    with dumped(tmp_path, model, level="mix"):
        train(model)
    assert seen == expected
    record = records(tmp_path / "dump")["Module.0.Linear.forward.0"]
    assert record["input_args"][0]["Max"] == 1.0  # as the caller gave it
    assert record["output"][0]["Max"] == pytest.approx(
        float((F.linear(torch.full((2, 3), 2.0), model[0].weight, model[0].bias) + 1).max()), rel=1e-6
    )


def test_async_dump_writes_the_same_numbers_and_files(tmp_path: Path) -> None:
    files: dict[bool, dict[str, Any]] = {}
    numbers: dict[bool, dict[str, Any]] = {}
    for late in (False, True):
        model = net()
        with dumped(tmp_path / str(late), model, level="mix", task="tensor", async_dump=late):
            train(model)
            with torch.no_grad():
                model[0].weight.mul_(3)  # what is queued must not change any more
        folder = rank_dir(tmp_path / str(late) / "dump") / "dump_tensor_data"
        files[late] = {p.name: torch.load(p, weights_only=True) for p in folder.iterdir()}
        data = records(tmp_path / str(late) / "dump")
        assert "lost" not in str(data)
        numbers[late] = {
            name: [slot and (slot.get("Max"), slot.get("Min")) for slot in record["output"]]
            for name, record in data.items()
            if name.startswith("Functional")
        }
    assert files[False].keys() == files[True].keys() and len(files[True]) > 20
    assert all(torch.equal(t, files[True][name]) for name, t in files[False].items())
    assert numbers[False] == numbers[True]


def test_an_exception_costs_one_record(tmp_path: Path) -> None:
    class Bad(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.sin(x)
            raise ValueError("on purpose")

    model = nn.ModuleDict({"a": nn.Linear(3, 3), "bad": Bad(), "b": nn.Linear(3, 3)})
    with dumped(tmp_path, model, level="mix"):
        x = model["a"](torch.ones(1, 3))
        with pytest.raises(ValueError, match="on purpose"):
            model["bad"](x)
        with pytest.raises(RuntimeError):
            torch.matmul(torch.ones(2), torch.ones(3))
        model["b"](x).sum().backward()
    data = records(tmp_path / "dump")
    assert data["Module.bad.Bad.forward.0"]["raised"] == "ValueError: on purpose"
    assert "raised" in data["Torch.matmul.0.forward"] and data["Torch.matmul.0.forward"]["input_args"]
    assert {"Torch.sin.0.forward", "Module.b.Linear.forward.0", "Module.b.Linear.backward.0"} <= set(data)
    assert not report(tmp_path / "dump")["faults"]


def test_a_subclass_is_the_current_debugger_too(tmp_path: Path) -> None:
    class Mine(PrecisionDebugger):
        pass

    with Mine(dump_path=str(tmp_path), level="L1", task="statistics") as mine:
        PrecisionDebugger.current().start()
        F.gelu(torch.ones(2))
        mine.stop()
        mine.step()
        assert list(records(tmp_path)) == ["Functional.gelu.0.forward"]
        assert type(Mine.current()) is Mine
        with pytest.raises(UsageError, match="has a PrecisionDebugger already"):
            PrecisionDebugger(dump_path=str(tmp_path), level="mix", task="statistics")


@pytest.mark.parametrize("which", ["linear.1", "2.Linear"])
def test_a_gradient_of_two_records_has_a_file_where_it_is_asked_for(which: str, tmp_path: Path) -> None:
    """A module and the function that is its last call end in the same node of autograd."""
    model = net()
    data = capture(tmp_path, lambda: train(model), model, level="mix", tensor_list=[which])
    files = [(leaf["data_name"], name) for name in data for leaf in leaves(data[name]) if "data_name" in leaf]
    assert any(".backward" in name for _, name in files)
    for file, record in files:
        assert which in record and file.startswith(record)
