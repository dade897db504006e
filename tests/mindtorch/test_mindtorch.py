"""Probe on a real mindtorch (that of mindnlp 0.5.1): names as of torch, numbers as of MindSpore."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import mindspore
import mindtorch
import numpy as np
import probe_format
import pytest
import torch
import torch.nn.functional as F
from blocks import texts_of
from messages import silent
from mindspore_dumping import (
    agrees,
    capture,
    collected,
    construct,
    leaves,
    load,
    opened,
    rank_dir,
    records,
    report,
    strict,
    validate,
)
from mindtorch_training import Bytes, Sgd, Text, filled, ones, train
from probe_format.errors import UsageError
from probe_format.read.verify import verify
from probe_mindspore import PrecisionDebugger, module_kind, seed_all
from torch import nn
from torch.nn.functional import silu  # bound before Probe comes

LEVELS = ("L0", "L1", "mix")
TASKS = ("statistics", "tensor")

TEXT_L0 = [
    "Module.embed.Embedding.forward.0",
    "Module.block.norm.LayerNorm.forward.0",
    "Module.block.up.Linear.forward.0",
    "Module.block.act.GELU.forward.0",
    "Module.block.down.Linear.forward.0",
    "Module.block.Block.forward.0",
    "Module.head.Linear.forward.0",
]
TEXT_L1 = [
    "Functional.embedding.0.forward",
    "Functional.layer_norm.0.forward",
    "Functional.linear.0.forward",
    "Functional.gelu.0.forward",
    "Functional.linear.1.forward",
    "Tensor.__add__.0.forward",
    "Functional.linear.2.forward",
    "Tensor.reshape.0.forward",
    "Tensor.reshape.1.forward",
    "Functional.cross_entropy.0.forward",
]
OPTIMIZER = [f"Torch.{name}.{i}.forward" for i in range(9) for name in ("mul", "sub")]


@cache
def unwatched(name: str) -> Bytes:
    return train(name)


def is_forward(name: str) -> bool:
    return name.endswith(".forward") or ".forward." in name


def text_work(model: Any) -> Any:
    parameters = list(model.parameters())
    gradients = torch.autograd.value_and_grad(lambda batch: model(batch), parameters)
    batch = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[2, 3, 4], [5, 6, 7]])
    return lambda: gradients(batch)


# ---------------- what is under test is the real thing
def test_torch_stands_on_mindspore() -> None:
    assert isinstance(torch.tensor(0.0), mindspore.Tensor)
    found = module_kind.detect()
    assert (found.framework, found.prefix, found.module_class) == ("mindtorch", "Module", nn.Module)
    assert module_kind.source_of_torch("torch.nn.functional") == "mindtorch.nn.functional"
    assert module_kind.source_of_torch("torch") == "mindtorch"


# ---------------- the run is what it is without Probe
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["text", "conv"])
def test_the_run_is_the_same_bit_for_bit(name: str, level: str, task: str, tmp_path: Path) -> None:
    with opened(tmp_path, level=level, task=task, step=[0, 1]) as debugger:
        watched = train(name, debugger)
    truth = unwatched(name)
    assert [key for key in truth if watched[key] != truth[key]] == []
    assert watched.keys() == truth.keys()
    weights = [key for key in truth if key.startswith("0.weight.")]
    assert weights and all(truth[key] != truth[f"2{key[1:]}"] for key in weights), "every weight learns"
    for step in (0, 1):
        names = records(tmp_path / "dump", step)
        assert any(is_forward(n) for n in names) and any("backward" in n for n in names)
        told = report(tmp_path / "dump", step)
        assert told["state"] == "complete" and told["faults"] == []
        counts = told["counts"]
        assert counts["seen"] == counts["recorded"] and not any(
            counts[kind] for kind in ("filtered", "unsupported", "failed", "left_out")
        )
        validate(rank_dir(tmp_path / "dump", step))
    assert [verdict.state for verdict in verify(tmp_path / "dump")] == ["complete", "complete"]
    assert not (tmp_path / "dump" / "step2").exists()


# ---------------- names
@pytest.mark.parametrize(
    ("level", "forward"),
    [("L0", TEXT_L0), ("L1", [*TEXT_L1, *OPTIMIZER]), ("mix", [*TEXT_L0, *TEXT_L1, *OPTIMIZER])],
)
def test_names_are_torchs(level: str, forward: list[str], tmp_path: Path) -> None:
    with opened(tmp_path, level=level) as debugger:
        train("text", debugger, steps=1)
    names = list(records(tmp_path / "dump"))
    assert sorted(filter(is_forward, names)) == sorted(forward)
    backward = {n.replace("backward", "forward") for n in names if "backward" in n}
    # Nothing flows back into whole numbers, nor out of the optimizer.
    assert backward == set(forward) - {*OPTIMIZER, "Tensor.reshape.1.forward"}
    gradients = [n for n in names if n.endswith(".parameters_grad")]
    owners = {
        "embed.Embedding",
        "block.norm.LayerNorm",
        "block.up.Linear",
        "block.down.Linear",
        "head.Linear",
    }
    assert set(gradients) == (set() if level == "L1" else {f"Module.{o}.parameters_grad" for o in owners})
    assert report(tmp_path / "dump")["header"]["framework"] == "mindtorch"


def test_what_belongs_to_what(tmp_path: Path) -> None:
    with opened(tmp_path, level="mix") as debugger:
        train("text", debugger, steps=1)
    above = construct(tmp_path / "dump")
    assert above["Functional.gelu.0.forward"] == "Module.block.act.GELU.forward.0"
    assert above["Module.block.act.GELU.forward.0"] == "Module.block.Block.forward.0"
    assert above["Functional.gelu.0.backward"] == "Module.block.act.GELU.backward.0"
    assert above["Functional.cross_entropy.0.forward"] is None
    assert {above[name] for name in OPTIMIZER} == {"optimizer"}


def test_modules_in_a_list_carry_their_index(tmp_path: Path) -> None:
    models = [nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.ReLU())]
    data = capture(tmp_path, lambda: models[1](models[0](ones(1, 2))), models, level="L0")
    assert list(data) == ["Module.0.0.Linear.forward.0", "Module.1.0.ReLU.forward.0"]


def test_functions_bound_before_and_held_by_modules_are_seen(tmp_path: Path) -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = F.relu

        def forward(self, x: Any) -> Any:
            return silu(self.act(x))

    model, relu = Holder(), F.relu
    data = capture(tmp_path, lambda: model(ones(2)), model, level="L1")
    assert list(data) == ["Functional.relu.0.forward", "Functional.silu.0.forward"]
    assert model.act is relu


# ---------------- numbers
def test_tensors_files_and_requires_grad(tmp_path: Path) -> None:
    model = filled(Text())
    data = capture(tmp_path, text_work(model), model, level="mix", task="tensor")
    everything = list(leaves(data))
    assert everything and all(leaf["type"] == "mindspore.Tensor" for leaf in everything)
    assert {leaf["dtype"] for leaf in everything} == {"Float32", "Int64"}
    assert all(isinstance(leaf["requires_grad"], bool) for leaf in everything)
    for leaf in everything:
        assert leaf["data_name"].endswith(".npy") and agrees(leaf, load(tmp_path / "dump", leaf))
    parameters = data["Module.head.Linear.forward.0"]["parameters"]
    assert all(parameters[name]["requires_grad"] for name in ("weight", "bias"))
    assert np.array_equal(load(tmp_path / "dump", parameters["weight"]), model.head.weight.asnumpy())
    assert not data["Module.embed.Embedding.forward.0"]["input_args"][0]["requires_grad"]
    (rank,) = probe_format.open(tmp_path / "dump").ranks
    assert {t.requires_grad for t in rank.records["Module.head.Linear.forward.0"].tensors} == {True, False}


@pytest.mark.parametrize("name", ["head", "block.up"])
def test_gradients_are_those_of_the_run(name: str, tmp_path: Path) -> None:
    model = filled(Text())
    data = capture(tmp_path, text_work(model), model, level="L0", task="tensor")
    layer, dump = model.get_submodule(name), tmp_path / "dump"
    found = data[f"Module.{name}.Linear.parameters_grad"]
    assert np.array_equal(load(dump, found["weight"][0]), layer.weight.grad.asnumpy())
    assert np.array_equal(load(dump, found["bias"][0]), layer.bias.grad.asnumpy())
    # By the rule of a linear layer, from what came in and what came back.
    arrived = load(dump, data[f"Module.{name}.Linear.backward.0"]["input"][0]).reshape(6, -1)
    given = load(dump, data[f"Module.{name}.Linear.forward.0"]["input_args"][0]).reshape(6, -1)
    sent = load(dump, data[f"Module.{name}.Linear.backward.0"]["output"][0]).reshape(6, -1)
    assert np.allclose(arrived.T @ given, layer.weight.grad.asnumpy(), atol=1e-5)
    assert np.allclose(arrived @ layer.weight.asnumpy(), sent, atol=1e-5)


def test_without_gradients_there_is_no_backward(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))

    def work() -> None:
        with torch.no_grad():
            model(ones(1, 2))

    data = capture(tmp_path, work, model, level="mix")
    assert sorted(data) == ["Functional.linear.0.forward", "Module.0.Linear.forward.0"]


def test_dtypes_have_mindspores_names(tmp_path: Path) -> None:
    narrow = torch.tensor([1.0, 2.5], dtype=torch.bfloat16)
    work = lambda: (narrow.to(torch.float16), torch.where(ones(2) > 0, ones(2), ones(2)))  # noqa: E731
    data = capture(tmp_path, work, level="L1", task="tensor")
    cast = data["Tensor.to.0.forward"]
    assert (cast["input_args"][0]["dtype"], cast["output"][0]["dtype"]) == ("BFloat16", "Float16")
    assert cast["input_args"][1] == {"type": "mindspore.dtype", "value": "Float16"}
    assert np.array_equal(load(tmp_path / "dump", cast["input_args"][0]), np.float32([1.0, 2.5]))
    assert data["Tensor.__gt__.0.forward"]["output"][0]["dtype"] == "Bool"


def test_gradients_in_bfloat16_are_seen(tmp_path: Path) -> None:
    """mindtorch's is_floating_point says no to bfloat16."""
    weight = nn.Parameter(ones(3))
    forward = lambda: (weight.to(torch.bfloat16).to(torch.float32) * 3.0).sum()  # noqa: E731
    data = capture(
        tmp_path, lambda: torch.autograd.value_and_grad(forward, [weight])(), level="L1", task="tensor"
    )
    (arrived,) = data["Tensor.to.0.backward"]["input"]
    assert arrived["dtype"] == "BFloat16" and agrees(arrived, np.full(3, 3.0))


def test_a_graph_of_mindspores_beside_the_model_is_one_call(tmp_path: Path) -> None:
    """MindSpore compiles no torch module: there is nothing of the model in a graph, and nothing to warn of."""

    @mindspore.jit
    def compiled(x: Any) -> Any:
        return x * 2 + 1

    model = nn.Sequential(nn.ReLU())
    with silent():
        data = capture(tmp_path, lambda: (compiled(ones(2)), model(ones(2))), model, level="mix")
    assert list(data) == ["Jit.compiled.0.forward", "Functional.relu.0.forward", "Module.0.ReLU.forward.0"]
    assert agrees(data["Jit.compiled.0.forward"]["output"][0], np.full(2, 3.0))
    assert [told["what"] for told in report(tmp_path / "dump")["not_seen"]] == [
        "own share of the gradients of inputs"
    ]


# ---------------- what is not the model, and what is left behind
def test_adding_up_gradients_is_no_call_of_the_model(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    gradients = torch.autograd.value_and_grad(lambda x: model(x).sum(), list(model.parameters()))
    data = capture(tmp_path, lambda: (gradients(ones(1, 2)), gradients(ones(1, 2))), model, level="L1")
    calls = ["Functional.linear.0.forward", "Functional.linear.1.forward"]
    assert sorted(filter(is_forward, data)) == [*calls, "Tensor.sum.0.forward", "Tensor.sum.1.forward"]


def test_printing_and_loading_data_are_left_out(tmp_path: Path) -> None:
    data = torch.utils.data
    loader = data.DataLoader(data.TensorDataset(ones(4, 2)), batch_size=2)
    found = capture(tmp_path, lambda: [str(x + 1) for (x,) in loader], level="L1")
    assert list(found) == ["Tensor.__add__.0.forward", "Tensor.__add__.1.forward"]
    left_out = report(tmp_path / "dump")["counts"]["left_out"]
    assert left_out["reading data"] and left_out["printing"] == 2


def test_a_step_that_a_scheduler_wraps_is_still_the_optimizers(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    parameters = list(model.parameters())
    optimizer = Sgd(parameters)
    torch.optim.StepLR(optimizer, 1)
    torch.autograd.value_and_grad(lambda x: model(x).sum(), parameters)(ones(1, 2))
    before = dict(torch.optim.optimizer._global_optimizer_pre_hooks)
    capture(tmp_path, optimizer.step, model, level="mix")
    assert list(records(tmp_path / "dump")) == OPTIMIZER[:4]
    above = construct(tmp_path / "dump")
    assert above == {"optimizer": None, **dict.fromkeys(OPTIMIZER[:4], "optimizer")}
    assert dict(torch.optim.optimizer._global_optimizer_pre_hooks) == before


def test_afterwards_all_is_as_before(tmp_path: Path) -> None:
    owners = (mindtorch, mindtorch.nn.functional, mindspore.Tensor, torch, F, nn.Module)
    before = [dict(vars(owner)) for owner in owners]
    model = filled(Text())
    capture(tmp_path, text_work(model), model, level="mix")
    assert [dict(vars(owner)) for owner in owners] == before


# ---------------- the rest of Probe
def test_token_range_counts_calls_of_the_model(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with collected(tmp_path, model, token_range=[1, 2], level="L0"):
        for _ in range(4):
            model(ones(1, 2))
    assert list(records(tmp_path / "dump")) == ["Module.0.Linear.forward.0", "Module.0.Linear.forward.1"]


def test_functions_of_ones_own(tmp_path: Path) -> None:
    library = type(sys)("library")
    library.twice = lambda x: x * 2  # type: ignore[attr-defined]
    with opened(tmp_path, level="L1") as debugger:
        debugger.register_custom_api(library, "twice")
        debugger.register_custom_api(torch, "full", "Mine")
        debugger.start()
        library.twice(torch.full((2,), 3.0))
        debugger.stop()
        debugger.step()
    data = records(tmp_path / "dump")
    assert [n for n in data if not n.startswith("Torch.")] == ["library.twice.0.forward"]
    assert agrees(data["library.twice.0.forward"]["output"][0], np.full(2, 6.0))


def test_level_debug_saves_values_and_gradients(tmp_path: Path) -> None:
    weight = nn.Parameter(ones(3))

    def forward(x: Any) -> Any:
        y = x * weight
        PrecisionDebugger.save(y, "y")
        return (y * y).sum()

    with opened(tmp_path, level="debug", task="tensor") as debugger:
        torch.autograd.value_and_grad(forward, [weight])(ones(3))
        debugger.step()
    (folder,) = (tmp_path / "dump" / "step0").iterdir()
    assert strict(folder / "debug.json")["framework"] == "mindtorch"
    names = sorted(path.name for path in (folder / "dump_tensor_data").iterdir())
    assert names == ["y.0.debug.npy", "y_grad.0.debug.npy"]
    assert np.array_equal(
        np.load(folder / "dump_tensor_data" / "y_grad.0.debug.npy"), np.full(3, 2.0, np.float32)
    )
    assert np.array_equal(weight.grad.asnumpy(), np.full(3, 2.0, np.float32))


def test_seed_all_reaches_its_generator_and_gives_it_back() -> None:
    before = torch.get_rng_state().asnumpy().copy()
    with seed_all(77):
        assert torch.initial_seed() == 77
        first = nn.Linear(4, 4).weight.asnumpy()
    assert np.array_equal(torch.get_rng_state().asnumpy(), before)
    with seed_all(77):
        assert np.array_equal(nn.Linear(4, 4).weight.asnumpy(), first)


def test_dropout_goes_and_comes_back() -> None:
    layer = nn.Dropout(0.9)
    with seed_all(rm_dropout=True):
        assert np.array_equal(layer(ones(100)).asnumpy(), np.ones(100, np.float32))
        assert np.array_equal(F.dropout(ones(100), 0.9).asnumpy(), np.ones(100, np.float32))
    assert not np.array_equal(layer(ones(100)).asnumpy(), np.ones(100, np.float32))


def test_without_the_list_of_names_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install probe-torch"):
        PrecisionDebugger(dump_path=str(tmp_path / "dump"), task="statistics", level="L1")


LATE = """
import sys
from probe_mindspore import PrecisionDebugger
debugger = PrecisionDebugger(dump_path=sys.argv[1], task="statistics", level=sys.argv[2])
import mindtorch
from torch import nn
debugger.start(nn.Linear(2, 2) if sys.argv[2] == "L0" else None)
debugger.stop()
debugger.step()
"""


def late(dump: Path, level: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LATE, str(dump), level]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def test_a_torch_that_comes_after_the_debugger_is_told(tmp_path: Path) -> None:
    done = late(tmp_path / "dump", "L0")
    assert done.returncode == 1
    assert "torch was imported after the PrecisionDebugger was made; import it before." in done.stderr


def test_without_a_model_the_report_tells_it(tmp_path: Path) -> None:
    done = late(tmp_path / "dump", "L1")
    assert done.returncode == 0, done.stderr
    told = {t["what"]: t["why"] for t in report(tmp_path / "dump")["not_seen"]}
    assert told["modules and functions of torch"].endswith("import it before")


def test_the_example_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "packages" / "probe-mindspore" / "README.md"
    (example,) = (code for code in texts_of(page, "python") if "mindtorch" in code)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {"__name__": "example"})
    assert "Module.1.GELU.backward.0" in records(tmp_path / "dump")
    assert [verdict.state for verdict in verify(tmp_path / "dump")] == ["complete"]
