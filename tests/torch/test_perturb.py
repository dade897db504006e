"""perturb: every float one step away, by numpy's own nextafter, and everything else as it was."""

from __future__ import annotations

import collections
import copy
import dataclasses
import random
from collections import UserDict
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from probe_format.errors import UsageError
from probe_torch import perturb
from torch import nn

# The dtypes, and numpy's type with a nextafter for each.
KINDS: dict[torch.dtype, Any] = {
    torch.float64: np.float64,
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.bfloat16: ml_dtypes.bfloat16,
    torch.float8_e5m2: ml_dtypes.float8_e5m2,
    torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    torch.float8_e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
    torch.float8_e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
}
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
SEEDS = st.integers(0, 2**32 - 1)


def bits_of(t: torch.Tensor) -> np.ndarray:
    found: np.ndarray = t.detach().contiguous().view(INTEGERS[t.element_size()]).numpy()
    return found.view(f"u{t.element_size()}")


def assert_one_step(before: torch.Tensor, after: torch.Tensor) -> None:
    """Each number is the next of its dtype, up or down, by numpy; zeros, infinities and NaN have the same bits."""
    kind = KINDS[before.dtype]
    old, new = bits_of(before), bits_of(after)
    x, y = old.view(kind), new.view(kind)
    with np.errstate(all="ignore"):
        wide, after_wide = x.astype(np.float64), y.astype(np.float64)
    still = (wide == 0) | ~np.isfinite(wide)
    assert np.array_equal(old[still], new[still])
    with np.errstate(all="ignore"):
        up, down = (np.nextafter(x, np.full_like(x, end)).view(new.dtype) for end in (np.inf, -np.inf))
    if before.dtype in (
        torch.float8_e4m3fn,
        torch.float8_e5m2fnuz,
        torch.float8_e4m3fnuz,
    ):  # no infinity to go to
        big = np.array(ml_dtypes.finfo(kind).max, kind)
        up, down = (np.nextafter(x, np.full_like(x, end)).view(new.dtype) for end in (big, -big))
    assert np.all((new == up) | (new == down) | still)
    assert np.all((new != old) | still)
    assert np.all(still | (np.isfinite(after_wide) & (after_wide != 0)))


@pytest.mark.parametrize("dtype", [d for d in KINDS if d.itemsize < 4], ids=str)
def test_every_number_of_the_small_dtypes(dtype: torch.dtype) -> None:
    count = 256**dtype.itemsize
    codes = torch.from_numpy(np.arange(count, dtype=f"u{dtype.itemsize}").view(f"i{dtype.itemsize}"))
    every = codes.view(torch.uint8).view(dtype)
    seen = set()
    for seed in range(4):
        after = perturb(every, seed)
        assert_one_step(every, after)
        seen.add(bits_of(after).tobytes())
    assert len(seen) == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@given(data=st.data(), seed=SEEDS)
def test_numbers_of_the_large_dtypes(dtype: torch.dtype, data: st.DataObject, seed: int) -> None:
    kind = np.dtype(KINDS[dtype])
    some = nps.arrays(f"u{kind.itemsize}", nps.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    bits = data.draw(some)
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(kind).max, -np.finfo(kind).max], kind)
    ends = np.concatenate([ends, [np.finfo(kind).smallest_subnormal, np.finfo(kind).tiny]]).astype(kind)
    for values in (bits.view(kind), ends):
        before = torch.from_numpy(values.copy())
        if before.numel() == 0:
            continue
        assert_one_step(before, perturb(before, seed))
        array = perturb(values, seed)
        assert array.tobytes() == bits_of(perturb(before, seed)).tobytes()


def test_both_directions_are_drawn_evenly() -> None:
    before = torch.rand(100_000) + 0.5
    up = (perturb(before) > before).double().mean().item()
    assert abs(up - 0.5) < 0.01


def test_the_same_seed_gives_the_same_numbers_and_draws_none_of_the_users() -> None:
    x = torch.randn(50)
    torch.manual_seed(3)
    states = torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())
    first = perturb(x, 7)
    assert torch.equal(first, perturb(x.clone(), 7))
    assert not torch.equal(first, perturb(x, 8))
    assert states == (torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state()))


def test_nothing_is_changed_in_place() -> None:
    value = {"x": torch.randn(4), "y": [np.ones(3), (torch.randn(2, dtype=torch.bfloat16), None)]}
    before = copy.deepcopy(value)
    after: Any = perturb(value)
    assert torch.equal(value["x"], before["x"])
    assert np.array_equal(value["y"][0], before["y"][0])
    assert torch.equal(value["y"][1][0], before["y"][1][0])
    assert after is not value
    after["x"].zero_()
    assert torch.equal(value["x"], before["x"])


@dataclasses.dataclass(frozen=True)
class Batch:
    x: torch.Tensor
    name: str


Pair = collections.namedtuple("Pair", "a b")


def test_structures_keep_their_form() -> None:
    ids, x = torch.arange(3), torch.randn(3)
    value = collections.OrderedDict(
        ids=ids, pair=Pair(x, 1.5), batch=Batch(x, "n"), again=[x, [x]], none=None, text="t", rest=[ids, (2,)]
    )
    after = perturb(value)
    assert type(after) is collections.OrderedDict
    assert list(after) == list(value)
    assert type(after["pair"]) is Pair
    assert (after["pair"].b, after["batch"].name) == (1.5, "n")
    assert after["ids"] is ids
    assert after["rest"] is value["rest"]
    one = after["pair"].a
    assert one is after["batch"].x is after["again"][0] is after["again"][1][0], "one tensor stays one"
    assert_one_step(x, one)
    packed = nn.utils.rnn.pack_sequence([torch.randn(3), torch.randn(2)])
    again = perturb(packed)
    assert type(again) is type(packed)
    assert_one_step(packed.data, again.data)
    assert again.batch_sizes is packed.batch_sizes


def test_what_contains_itself_ends() -> None:
    value: list[Any] = [torch.randn(2)]
    value.append(value)
    assert_one_step(value[0], perturb(value)[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.t(),
        lambda x: x[::2, 1:],
        lambda x: x[0, 0],
        lambda x: x[:1].expand(5, -1),
        lambda x: x.reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
        lambda x: x[:0],
    ],
)
def test_strides_and_shapes(make: Any) -> None:
    x = make(torch.randn(6, 4))
    after = perturb([x, torch.ones(1)])[0]
    assert after.shape == x.shape
    if x.is_contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x.t().is_contiguous():
        assert after.stride() == x.stride()
    assert_one_step(x, after)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.complex32])
def test_complex_numbers_move_in_both_parts(dtype: torch.dtype) -> None:
    x = torch.view_as_complex(torch.randn(9, 2).to(torch.empty(0, dtype=dtype).real.dtype))
    for value in (x, x.conj()):
        after = perturb(value)
        assert after.dtype == dtype
        assert_one_step(torch.view_as_real(value.resolve_conj()), torch.view_as_real(after))
    array = x.to(torch.complex64).numpy()
    moved = perturb(array)
    assert_one_step(torch.from_numpy(array.view(np.float32)), torch.from_numpy(moved.view(np.float32)))


def test_gradients_and_parameters() -> None:
    x = torch.randn(3, requires_grad=True)
    after = perturb(x)
    assert after.requires_grad and after.is_leaf
    assert not perturb(x * 2).detach().requires_grad
    p = nn.Parameter(torch.randn(3), requires_grad=False)
    moved = perturb(p)
    assert isinstance(moved, nn.Parameter) and not moved.requires_grad


def test_the_weights_of_a_model_that_takes_tokens() -> None:
    model = nn.Sequential(nn.Embedding(8, 4), nn.LayerNorm(4), nn.BatchNorm1d(4))
    tokens = torch.arange(8)
    before = copy.deepcopy(model.state_dict())
    out = model.eval()(tokens)
    with pytest.raises(UsageError, match="load_state_dict"):
        perturb({"tokens": tokens})
    model.load_state_dict(perturb(model.state_dict()))
    for name, weight in model.state_dict().items():
        if weight.is_floating_point():
            assert_one_step(before[name], weight)
    moved = model(tokens)
    assert not torch.equal(moved, out)
    assert torch.allclose(moved, out, atol=1e-5)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.ones(2, device="meta"), "meta device"),
        (torch.eye(2).to_sparse(), "sparse_coo"),
        (torch.nested.nested_tensor([torch.ones(1)]), "nested"),
        *(
            (torch.ones(2).to(getattr(torch, name)), name)
            for name in ("float8_e8m0fnu",)
            if hasattr(torch, name)
        ),
        (np.ones(2, np.longdouble), "longdouble|float128"),
        (torch.arange(2), "no tensor of floats"),
        (None, "no tensor of floats in this NoneType"),
        ({}, "no tensor of floats"),
    ],
    ids=str,
)
def test_what_cannot_be_moved_is_told(value: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        perturb(value)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True, None, "1"])
def test_wrong_seeds(seed: Any) -> None:
    with pytest.raises(UsageError, match="perturb: seed must be"):
        perturb(torch.ones(1), seed)


def test_a_class_whose_copies_share_what_they_hold_is_left_alone() -> None:
    class Shared(UserDict[str, Any]):
        def __copy__(self) -> Shared:
            found = Shared()
            found.data = self.data
            return found

    batch = Shared(x=torch.ones(2), y=torch.ones(3))
    before = dict(batch)
    with pytest.raises(UsageError, match="a copy of a Shared"):
        perturb(batch)
    assert all(batch[key] is before[key] for key in before)
