"""Any tensor as plain data: names, shape, and a detached tensor with the numbers or the reason why not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from probe_torch.tensors.tensor_view import TensorView, view_of
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

X = torch.tensor([[1.0, -2.0, 0.0], [4.0, 5.0, 6.0]])


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sparse, nested and quantised tensors announce themselves
        yield


def check(t: Tensor, right: Tensor | None, *, kind: str = "torch.Tensor") -> TensorView:
    """``view_of(t)`` holds these numbers, detached, and left ``t`` as it was."""
    grad_fn, requires = t.grad_fn, t.requires_grad
    found = view_of(t)
    assert (t.grad_fn, t.requires_grad) == (grad_fn, requires)
    assert found.type == kind
    if right is None:
        assert found.data is None
        assert found.reason
        return found
    assert found.reason == ""
    assert found.data is not None
    assert type(found.data) is Tensor
    assert not found.data.requires_grad
    assert not (found.data.is_conj() or found.data.is_neg())
    assert torch.equal(found.data, right)
    return found


class Sub(Tensor):
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda: X.clone(),
        lambda: X.clone().requires_grad_(),
        lambda: X.clone().requires_grad_() * 1,
        lambda: nn.Parameter(X.clone()),
        lambda: X.clone().as_subclass(Sub),  # type: ignore[arg-type]
    ],
    ids=["leaf", "requires grad", "computed", "parameter", "subclass"],
)
def test_ordinary_tensors_are_themselves(make: Callable[[], Tensor]) -> None:
    t = make()
    found = check(t, X)
    assert (found.dtype, found.shape, found.extra, found.bits) == ("torch.float32", [2, 3], {}, None)
    assert found.data is not None
    assert found.data.data_ptr() == t.data_ptr()  # not a copy
    with torch.no_grad():
        t.add_(1)
    assert found.data._version == t._version  # and its version counter is the tensor's


def test_inference_tensors() -> None:
    with torch.inference_mode():
        t = X.clone()
        check(t, X)
    check(t, X)


def test_lazily_conjugated_and_negated_tensors() -> None:
    z = torch.tensor([1 + 2j, 3 - 1j])
    assert z.conj().is_conj()
    found = check(z.conj(), torch.tensor([1 - 2j, 3 + 1j]))
    assert found.dtype == "torch.complex64"
    assert z.conj().imag.is_neg()
    check(z.conj().imag, torch.tensor([-2.0, 1.0]))
    check(z.conj().as_subclass(Sub), torch.tensor([1 - 2j, 3 + 1j]))  # type: ignore[arg-type]


def test_lazy_zeros_are_zeros() -> None:
    """Autograd makes them in forward mode, and for gradients that are zero. They have no memory."""
    for dtype in (torch.float32, torch.int64, torch.complex64):
        zeros = torch._efficientzerotensor((2, 3), dtype=dtype)  # type: ignore[attr-defined]
        right = torch.zeros(2, 3, dtype=dtype)
        check(zeros, right)
        check(zeros.t(), right.t())
        check(zeros.conj() if dtype.is_complex else torch._neg_view(zeros), right)  # type: ignore[attr-defined]
        check(zeros.as_subclass(Sub), right)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_freed_memory_is_a_reason(dtype: torch.dtype) -> None:
    """A weight that FSDP, or a program of that kind, frees by ``storage.resize_(0)`` keeps shape and offset."""
    flat = torch.ones(12, dtype=dtype)
    parts = [flat, flat[4:10], flat[4:10].view(2, 3).t(), flat[::2], flat[5], flat[1:2].expand(3, 4)]
    parts += [flat[4:].as_subclass(Sub), nn.Parameter(flat[4:], requires_grad=False)]  # type: ignore[arg-type]
    flat.untyped_storage().resize_(0)
    for part in parts:
        assert check(part, None).reason == "its memory is freed"
    check(flat[4:4], torch.ones(0, dtype=dtype))


def test_functorch_wrappers_show_the_whole_batch() -> None:
    seen: list[TensorView] = []

    def look(x: Tensor) -> Tensor:
        seen.append(view_of(x))
        return x.sum()

    torch.func.vmap(look)(X)
    torch.func.grad(look)(X[0])
    torch.func.vmap(torch.func.grad(look))(X)
    assert [found.type for found in seen] == ["BatchedTensor", "GradTrackingTensor", "GradTrackingTensor"]
    for found, right in zip(seen, [X, X[0], X], strict=True):
        assert found.data is not None
        assert torch.equal(found.data, right)
        assert found.shape == list(right.shape)


def test_sparse_tensors_show_their_stored_values() -> None:
    for t, layout in (
        (X.to_sparse(), "torch.sparse_coo"),
        (X.to_sparse_csr(), "torch.sparse_csr"),
        (X.to_sparse_csc(), "torch.sparse_csc"),
    ):
        found = view_of(t)
        assert found.data is not None
        assert sorted(found.data.tolist()) == [-2.0, 1.0, 4.0, 5.0, 6.0]
        assert (found.shape, found.extra) == ([2, 3], {"layout": layout, "stored": 5})
    twice = torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,))  # not coalesced: looking must not do it
    found = check(twice, torch.tensor([1.0, 2.0]))
    assert found.extra["stored"] == 2
    assert not twice.is_coalesced()
    grad = X.to_sparse().requires_grad_()
    assert view_of(grad).data is not None


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no mkldnn")
def test_mkldnn_tensors() -> None:
    found = check(X.to_mkldnn(), X)
    assert found.extra == {"layout": "torch._mkldnn"}


def test_nested_tensors_show_their_values() -> None:
    parts = [X[0], X[1, :2]]
    right = torch.tensor([1.0, -2.0, 0.0, 4.0, 5.0])
    strided = torch.nested.nested_tensor(parts)
    found = check(strided, right)
    assert found.extra == {"nested": True}
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    found = check(jagged, right, kind="torch.nested._internal.nested_tensor.NestedTensor")
    assert found.shape == [5]


def test_quantised_tensors_have_numbers_and_bits() -> None:
    for t in (
        torch.quantize_per_tensor(X, 0.5, 10, torch.quint8),
        torch.quantize_per_channel(X, torch.tensor([0.5, 0.5]), torch.tensor([10, 10]), 0, torch.qint8),
    ):
        found = check(t, X)
        assert found.dtype == str(t.dtype)
        assert found.bits is not None
        assert torch.equal(found.bits, t.int_repr())


def test_tensors_without_data_say_why() -> None:
    found = check(torch.empty(2, 3, device="meta"), None)
    assert (found.shape, found.reason) == ([2, 3], "a meta tensor has no data")
    with FakeTensorMode():
        fake = torch.empty(2, 3)
    found = check(fake, None, kind="torch._subclasses.fake_tensor.FakeTensor")
    assert "fake" in found.reason
    found = check(nn.LazyLinear(3).weight, None)
    assert "uninitialised" in found.reason
    assert found.shape == []


class Wrapper(Tensor):
    """A wrapper subclass, as tensor parallelism and quantisation libraries make them."""

    elem: Any

    @staticmethod
    def __new__(cls, elem: Tensor, name: str = "elem") -> Wrapper:
        out = Tensor._make_wrapper_subclass(cls, elem.shape, dtype=elem.dtype)  # type: ignore[attr-defined]
        setattr(out, name, elem)
        return out  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"looking ran {func} on the user's class")


class Hostile(Wrapper):
    @property
    def elem(self) -> Any:
        raise RuntimeError("mine")

    @elem.setter
    def elem(self, value: Any) -> None:
        pass


def test_wrapper_subclasses() -> None:
    found = check(Wrapper(X), X, kind=f"{__name__}.Wrapper")
    nested = check(Wrapper(Wrapper(X)), X, kind=f"{__name__}.Wrapper")
    assert nested.shape == [2, 3]
    found = check(Wrapper(X, "hidden"), None, kind=f"{__name__}.Wrapper")
    assert "hides its data" in found.reason


class Traceable(Wrapper):
    """One that tells its parts, as those that torch.compile traces do."""

    parts = ("data_",)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return [*self.parts], None


class Halves(Traceable):
    parts = ("high", "low")


class Quantised(Halves):
    """One that stands for other numbers than those of its parts, as torchao's do."""

    def dequantize(self) -> Tensor:
        return self.high.to(torch.float32) * self.low


class Unreadable(Halves):
    def dequantize(self) -> Tensor:
        raise RuntimeError("mine")


def test_subclasses_that_tell_their_parts() -> None:
    check(Traceable(X, "data_"), X, kind=f"{__name__}.Traceable")
    check(Traceable(Traceable(X, "data_"), "data_"), X, kind=f"{__name__}.Traceable")
    found = check(Halves(X, "high"), None, kind=f"{__name__}.Halves")
    assert found.reason.endswith("Halves hides its data in high, low")
    whole = Quantised(X, "high")
    whole.low = torch.full((2, 1), 0.5, requires_grad=True)
    check(whole, X / 2, kind=f"{__name__}.Quantised")
    found = check(Unreadable(X, "high"), None, kind=f"{__name__}.Unreadable")
    assert found.reason == "cannot be read (RuntimeError: mine)"


def test_what_torchao_quantises() -> None:
    quantization = pytest.importorskip("torchao.quantization")
    optimizers = pytest.importorskip("torchao.optim.subclass_8bit")
    for config in (quantization.Int8WeightOnlyConfig(), quantization.Float8WeightOnlyConfig()):
        linear = nn.Linear(64, 64, dtype=torch.bfloat16)
        weight = linear.weight.detach().clone()
        quantization.quantize_(linear, config)
        found = view_of(linear.weight)
        assert found.data is not None and torch.allclose(found.data, weight, atol=0.01)
    found = view_of(optimizers.OptimState8bit.zeros((256, 256)))
    assert found.data is not None and found.data.shape == (256, 256) and not found.data.any()


def test_a_subclass_that_raises_is_a_reason() -> None:
    found = check(Hostile(X), None, kind=f"{__name__}.Hostile")
    assert "RuntimeError: mine" in found.reason
    assert found.shape == [2, 3]


class Loud(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"looking called {func} of the user's class")


def test_the_users_torch_function_is_not_called() -> None:
    with torch._C.DisableTorchFunctionSubclass():
        t = X.clone().as_subclass(Loud)  # type: ignore[arg-type]
    with torch._C.DisableTorchFunctionSubclass():
        right = view_of(t)
    found = view_of(t)
    assert found.type == right.type == "torch.Tensor"
    assert found.data is not None
    assert torch.equal(found.data, X)


def test_dtensors_show_their_local_part_and_their_placement(one_process: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    mesh = init_device_mesh("cpu", (1,))
    kind = "torch.distributed.tensor.DTensor"
    for placement, written in (
        (Shard(1), {"Shard": {"dim": 1}}),
        (Replicate(), {"Replicate": {}}),
        (Partial(), {"Partial": {"reduce_op": "sum"}}),
    ):
        t = DTensor.from_local(X.clone(), mesh, [placement])
        found = check(t, X, kind=kind)
        assert found.extra == {"device_mesh": [0], "placements": [written], "global_shape": [2, 3]}
        assert found.shape == [2, 3]
    parameter = nn.Parameter(DTensor.from_local(X.clone(), mesh, [Shard(0)]))
    check(parameter, X, kind=kind)
