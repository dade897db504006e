"""One PyTorch call under Ascend's dumper: the calls into torch_npu, recorded, and a run that stays the same."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from probe_format.errors import ConfigError, UsageError  # noqa: E402
from probe_kernel import torch as kernels  # noqa: E402
from recorded_npu import ORDER, Npu, Watcher, installed  # noqa: E402

F = torch.nn.functional


def step(seed: int = 1) -> tuple[float, list[Any]]:
    """A small step with two linear layers and a dropout; the loss and the gradients."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Dropout(0.5), torch.nn.Linear(5, 3))
    loss = F.cross_entropy(net(torch.randn(6, 4)), torch.tensor([0, 1, 2, 0, 1, 2]))
    loss.backward()
    return loss.item(), [p.grad for p in net.parameters()]


def same(a: tuple[float, list[Any]], b: tuple[float, list[Any]]) -> bool:
    return a[0] == b[0] and all(torch.equal(x, y) for x, y in zip(a[1], b[1], strict=True))


def test_forward(npu: Npu, tmp_path: Path) -> None:
    plain = step()
    with Watcher(npu), kernels.dump("Functional.linear.1.forward", path=tmp_path / "d") as watch:
        dumped = step()
    assert same(dumped, plain)
    assert npu.calls == ORDER
    assert "addmm" in npu.ran
    assert not {"native_dropout", "mm", "_log_softmax"} & set(npu.ran)
    assert watch.state == "dumped"
    ((file, config),) = npu.configs
    assert file == tmp_path / "d" / f"kernel_config_{os.getpid()}.json"
    assert config == {
        "dump": {
            "dump_list": [],
            "dump_path": str(tmp_path / "d"),
            "dump_mode": "all",
            "dump_op_switch": "on",
        }
    }


def test_backward_runs_alone_and_the_run_is_the_same(npu: Npu, tmp_path: Path) -> None:
    plain = step()
    with Watcher(npu), kernels.dump("Functional.linear.1.backward", path=tmp_path) as watch:
        dumped = step()
    assert same(dumped, plain)
    assert npu.calls == ORDER
    assert npu.ran.count("mm") == 2  # the gradients of input and weight, and no forward pass
    assert "addmm" not in npu.ran
    assert watch.describe() == f"the kernels of Functional.linear.1.backward are dumped in {tmp_path}"


def test_a_random_call_draws_the_same_numbers(npu: Npu, tmp_path: Path) -> None:
    plain = step()
    with kernels.dump("Functional.dropout.0.backward", path=tmp_path) as watch:
        assert same(step(), plain)
    assert watch.state == "dumped"


@pytest.mark.parametrize(
    ("api", "run"),
    [
        ("Tensor.add_.0.backward", lambda x: (x * 2).add_(x).sum()),
        ("Tensor.__iadd__.0.backward", lambda x: (x * 2).__iadd__(x).sum()),
        ("Torch.chunk.0.backward", lambda x: torch.chunk(x, 2)[0].sum()),  # one of two outputs is used
        ("Torch.where.0.backward", lambda x: torch.where(x > 0, x, x * 3).sum()),
        ("Torch.cat.0.backward", lambda x: torch.cat([x, x]).sum()),
        ("Functional.softmax.0.backward", lambda x: F.softmax(x, dim=0)[0].sum()),
        ("Torch.svd.0.backward", lambda x: torch.svd(x.reshape(2, 2))[1].sum()),
    ],
)  # fmt: skip
def test_every_kind_of_call(npu: Npu, tmp_path: Path, api: str, run: Any) -> None:
    x = torch.tensor([1.0, -2.0, 3.0, 0.5], requires_grad=True)
    run(x).backward()
    plain, x.grad = x.grad, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with kernels.dump(api, path=tmp_path) as watch:
            run(x).backward()
    assert not [str(w.message) for w in caught]
    assert watch.state == "dumped", watch.why
    assert torch.equal(x.grad, plain)
    assert npu.calls == ORDER


def test_nothing_stays_behind(npu: Npu, tmp_path: Path) -> None:
    before = F.linear, torch.Tensor.add_, "add_" in vars(torch.Tensor)
    for api in ("Functional.linear.0.forward", "Tensor.add_.0.forward"):
        with pytest.raises(KeyError), kernels.dump(api, path=tmp_path):
            raise KeyError
    assert (F.linear, torch.Tensor.add_, "add_" in vars(torch.Tensor)) == before


@pytest.mark.parametrize(
    ("api", "says"),
    [
        ("Functional.linear.5.forward", "Functional.linear was called 2 times, so its numbers end at 1"),
        ("Functional.conv2d.0.forward", "Functional.conv2d was never called"),
        ("Functional.linear.5.backward", "numbers end at 1"),
    ],
)
def test_a_call_that_never_came_is_told(npu: Npu, tmp_path: Path, api: str, says: str) -> None:
    with pytest.warns(RuntimeWarning, match=says), kernels.dump(api, path=tmp_path):
        step()
    assert npu.calls == []


def test_a_gradient_that_never_came_is_told(npu: Npu, tmp_path: Path) -> None:
    x = torch.randn(3, requires_grad=True)
    with (
        pytest.warns(RuntimeWarning, match="no gradient came back"),
        kernels.dump("Torch.sin.0.backward", path=tmp_path),
    ):
        torch.sin(x)
    with (
        pytest.warns(RuntimeWarning, match="no input or output of this call has a gradient"),
        kernels.dump("Torch.sin.0.backward", path=tmp_path),
    ):
        torch.sin(x.detach())
    assert npu.calls == []


@pytest.mark.parametrize("failing", ["synchronize", "init_dump", "set_dump", "finalize_dump"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_dumper_that_fails_costs_the_dump_not_the_run(tmp_path: Path, failing: str, direction: str) -> None:
    plain = step()
    with installed(Npu(**{failing: RuntimeError("no device")})) as npu:
        with (
            pytest.warns(RuntimeWarning, match="are not dumped: RuntimeError: no device"),
            kernels.dump(f"Functional.linear.1.{direction}", path=tmp_path) as watch,
        ):
            assert same(step(), plain)
        assert watch.state == "failed"
        if "init_dump" in npu.calls and failing not in ("init_dump",):
            assert "finalize_dump" in npu.calls


def test_a_call_that_raises_is_the_users_own(npu: Npu, tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="shapes cannot be multiplied"),
        kernels.dump("Functional.linear.0.forward", path=tmp_path) as watch,
    ):
        F.linear(torch.ones(2, 3), torch.ones(4, 5))
    assert npu.calls == ORDER  # and the dumper is off again
    assert watch.why == "the call raised RuntimeError"


def test_without_torch_npu(tmp_path: Path) -> None:
    name = "Functional.linear.0.forward"
    with (
        pytest.raises(UsageError, match="torch_npu is not installed"),
        kernels.dump(name, path=tmp_path / "d"),
    ):
        pass
    assert not (tmp_path / "d").exists()
    with (
        installed(SimpleNamespace(init_dump=None)),
        pytest.raises(UsageError, match=r"no npu\.set_dump"),
        kernels.dump(name, path=tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("api", "says"),
    [
        ("Functional.lineer.0.forward", "Did you mean 'linear'"),
        ("Functionel.linear.0.forward", "Did you mean 'Functional'"),
        ("Module.fc.Linear.forward.0", "is no API"),
        ("Functional.linear", "not the full name of a call"),
        (3, "is not the full name of a call"),
    ],
)
def test_a_wrong_name_is_told_at_once(npu: Npu, tmp_path: Path, api: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says), kernels.dump(api, path=tmp_path):
        pass


def test_all_problems_at_once(npu: Npu, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught, kernels.dump("x", path=tmp_path / "file" / "d", mode="al"):
        pass
    assert [p.where for p in caught.value.problems] == ["api", "mode", "path"]
