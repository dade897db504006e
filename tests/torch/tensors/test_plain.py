"""The straight way of a plain tensor to its JSON: the same bytes as the general way, in a few calls."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from probe_format.tensors import native
from probe_format.write import Coverage
from probe_torch.tensors.leaf import Placement, TensorLeaf, TensorOptions
from torch import Tensor


def leaf_in(folder: Path, **options: Any) -> TensorLeaf:
    folder.mkdir(exist_ok=True)
    return TensorLeaf(TensorOptions(folder, **options), Coverage(), lambda event: None)


def both(t: Tensor, folder: Path, file: bool, **options: Any) -> tuple[Any, Any]:
    """The object of a tensor by the straight way, where it is open to it, and by the general way."""
    found = []
    for name in ("a", "b"):
        leaf = leaf_in(folder / name, **options)
        if name == "b":
            leaf.straight = False
        with leaf.aside():
            found.append(
                leaf.tensor(Placement("Torch.a.0.forward", "input", file, label="input_args"), t, (0,))
            )
        found.append((leaf.summary.json(), leaf.tally))
    straight, said, general, said_too = found
    assert said == said_too
    return straight, general


DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "bool": torch.bool,
    "complex64": torch.complex64,
}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda t: t,
    "needs a gradient": lambda t: t.clone().requires_grad_(t.is_floating_point()),
    "parameter": lambda t: torch.nn.Parameter(t, requires_grad=t.is_floating_point()),
    "every second": lambda t: torch.stack([t, t], -1)[..., 0],
    "negated lazily": lambda t: torch._neg_view(t) if t.is_floating_point() else t,
    "a part of each row": lambda t: t[..., :2],
    "transposed": lambda t: t.t().contiguous().t() if t.ndim == 2 else t,
    "empty": lambda t: t.reshape(-1)[:0],
    "0-d": lambda t: t.reshape(-1)[0],
    "result": lambda t: t.clone().requires_grad_(t.is_floating_point()) * 1,
}
SMALL = [0.0, -0.0, 5e-324, 1e-45, 1e-38, 1e-22, 1e-5]
EDGES = [*SMALL, 1.0, 123456789.0, 1e16, 1e38, 1.7e308, math.inf, -math.inf, math.nan]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "options",
    [{}, {"checksum": "md5"}, {"checksum": "xor", "statistics": False}, {"zero_count": True}],
    ids=str,
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bytes_are_those_of_the_general_way(
    dtype: str, options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("t")

    @given(
        hnp.arrays(
            "float64", hnp.array_shapes(max_dims=3, max_side=6), elements=st.floats() | st.sampled_from(EDGES)
        ),
        st.sampled_from(sorted(LAYOUTS)),
        st.booleans(),
    )
    @example(np.zeros((3, 3)), "as it is", True)
    @example(np.array([-0.0, 0.0]), "result", False)
    @example(np.full(5, 1e-30), "needs a gradient", True)
    @example(np.full(40_000, 0.1), "as it is", False)  # longer than what is read from an address
    @example(np.linspace(-3, 5, 9000).reshape(90, 100), "transposed", True)
    @example(np.linspace(-3, 5, 9000).reshape(90, 100), "a part of each row", True)
    @example(np.linspace(-3, 5, 8192), "as it is", False)
    def run(values: Any, layout: str, file: bool) -> None:
        with np.errstate(all="ignore"):
            t = LAYOUTS[layout](torch.from_numpy(values.copy()).to(DTYPES[dtype]))
        straight, general = both(t, folder, file, **options)
        assert straight == general
        if file and t.numel():
            name = "Torch.a.0.forward.input.0.pt"
            assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes()

    run()


def freed(t: Tensor) -> Tensor:
    """As FSDP and its like leave a weight that is gathered when it is needed."""
    t.untyped_storage().resize_(0)
    return t


def odd_tensors() -> dict[str, Tensor]:
    x = torch.arange(6.0).reshape(2, 3)
    found = {
        "nested": torch.nested.nested_tensor([x, x[:1]]),
        "sparse": x.to_sparse(),
        "csr": x.to_sparse_csr(),
        "mkldnn": x.to_mkldnn(),
        "zero, lazily": torch._efficientzerotensor((2, 3)),
        "functional": torch._to_functional_tensor(x),
        "quantised": torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        "meta": x.to("meta"),
        "expanded": x[:1].expand(4, 3),
        "freed": freed(x.clone()),
        "freed, a part of a flat buffer": freed(torch.arange(12.0)[4:10].view(2, 3)),
        "freed, with holes": freed(torch.rand(4, 6).t()[1:, :2]),
    }
    with torch.inference_mode():
        found["of inference"] = x + 1
    torch.vmap(lambda t: found.__setitem__("batched", t) or t)(x)  # type: ignore[func-returns-value]
    torch.func.grad(lambda t: found.__setitem__("tracked", t) or t.sum())(x)  # type: ignore[func-returns-value]
    torch.func.functionalize(lambda t: found.__setitem__("functionalised", t) or t)(x)  # type: ignore[func-returns-value]
    return found


@pytest.mark.filterwarnings("ignore")
def test_an_odd_tensor_of_torchs_own_class_is_described_in_the_general_way(tmp_path: Path) -> None:
    for name, t in odd_tensors().items():
        for file, options in ((False, {}), (True, {"checksum": "md5"})):
            straight, general = both(t, tmp_path, file, **options)
            assert straight == general, name
            assert name[:5] != "freed" or b"its memory is freed" in straight


def calls(work: Callable[[], Any]) -> int:
    """How many calls Python makes, of its own functions and of built-in ones, without that of ``work`` itself."""
    count = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # a collection calls what others have registered for it
    sys.setprofile(profile)
    work()
    sys.setprofile(None)
    gc.enable()
    return count - 2  # the lambda, and setprofile(None)


@pytest.fixture
def fast() -> None:
    if not native.WAY:
        pytest.skip("probe-fast has no library here")


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_a_tensor_costs_a_few_calls(dtype: str, tmp_path: Path) -> None:
    leaf = leaf_in(tmp_path)
    first = Placement("Torch.a.0.forward", "input", False, label="input_args")
    weight = torch.nn.Parameter(torch.randn(4, 4).to(DTYPES[dtype]))
    results = [weight * i for i in range(1, 12)]
    with leaf.aside():
        for t in results[:8]:  # five norms and their shape are known then
            leaf.tensor(first, t, (0,))
        leaf.summary.settle()
        small = results[8] * 1e-3
        assert calls(lambda: leaf.tensor(first, small, (0,))) <= 11


@pytest.mark.usefixtures("fast")
def test_a_file_costs_a_few_calls_more(tmp_path: Path) -> None:
    leaf = leaf_in(tmp_path)
    place = Placement("Torch.a.0.forward", "input", True, label="input_args")
    weight = torch.nn.Parameter(torch.randn(4, 4))
    with leaf.aside():
        for i in range(1, 8):
            leaf.tensor(place, weight * i, (i,))
        leaf.summary.settle()
        small = weight * 1e-3
        assert (
            calls(lambda: leaf.tensor(place, small, (8,))) <= 44
        )  # two look whether the folder still is ours
        assert calls(lambda: leaf.tensor(place, small, (9,))) <= 44
    assert (tmp_path / "Torch.a.0.forward.input.8.pt").samefile(tmp_path / "Torch.a.0.forward.input.9.pt")
