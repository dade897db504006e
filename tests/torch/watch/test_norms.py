"""The norms of task `watch` against float64, and the counts against what was planted."""

from __future__ import annotations

import dataclasses
from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from probe_runtime.watch import tensors_in
from probe_torch.aside import aside
from probe_torch.watch.norms import changes_of, norms_of


def norms(*tensors: Any) -> Any:
    with torch.no_grad(), aside():
        return norms_of(tensors)


def truth(t: torch.Tensor) -> float:
    return float(
        t.detach().to(torch.complex128 if t.is_complex() else torch.float64).abs().square().sum().sqrt()
    )


WHOLE = torch.randn(3_000_001, generator=torch.Generator().manual_seed(0))
KINDS = {
    "large": WHOLE,
    "rows": WHOLE[:3_000_000].view(3, 1000, 1000).transpose(0, 2),
    "wide": WHOLE[:3_000_000].view(2, -1).t(),
    "small": WHOLE[:7],
    "scalar": WHOLE[5],
    "bfloat16": WHOLE.bfloat16(),
    "float16": WHOLE[:1000].half(),
    "float64": WHOLE.double(),
    "float8": WHOLE[:1000].to(torch.float8_e4m3fn).float(),
    "complex": torch.complex(WHOLE[:1000], WHOLE[1000:2000]),
    "integers": torch.arange(100),
    "steps": WHOLE[::3],
    "same": torch.full((1 << 21,), 0.1),
    "tiny": torch.full((100,), 1e-30),
    "least": torch.full((100,), 1e-45),
    "huge": torch.full((100,), 1e30),
    "most": torch.full((100,), 3.4e38),
    "zero": torch.zeros(3, 3),
    "one of many": torch.cat([torch.zeros(1 << 21), torch.tensor([1e-25])]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_norm_is_that_of_float64(kind: str) -> None:
    t = KINDS[kind]
    found = norms(WHOLE[:3], t, WHOLE[:2])
    assert found.values[1] == pytest.approx(truth(t), rel=1e-4, abs=0.0)
    assert not found.bad
    assert found.values[[0, 2]].tolist() == pytest.approx([truth(WHOLE[:3]), truth(WHOLE[:2])], rel=1e-6)


def test_sparse_and_empty_tensors() -> None:
    indexes = torch.tensor([[0, 2, 0]])
    sparse = torch.sparse_coo_tensor(indexes, torch.ones(3, 2), (4, 2))
    found = norms(torch.zeros(0, 3), sparse, torch.zeros(0))
    assert found.values.tolist() == [0.0, pytest.approx(truth(sparse.to_dense())), 0.0]


def test_counts_are_what_was_planted() -> None:
    bad = WHOLE.clone()
    bad[[5, 2_000_000]] = float("nan")
    bad[7] = float("-inf")
    worse = WHOLE[:1000].clone()
    worse[:3] = float("inf")
    found = norms(WHOLE, bad, worse, KINDS["most"], KINDS["zero"])
    assert np.isnan(found.values[1])
    assert np.isinf(found.values[2])
    assert found.bad == {1: (2, 1), 2: (0, 3)}


#: What a difference is computed in.
WIDE = {torch.bfloat16: torch.float32, torch.float32: torch.float64}


def test_changes_are_those_of_the_whole_and_copies_are_as_new() -> None:
    olds = [
        WHOLE.clone(),
        WHOLE[:12].view(3, 4).t().clone(),
        WHOLE[:5].bfloat16(),
        WHOLE[:8].double(),
        WHOLE[:4].clone(),
        WHOLE.bfloat16(),
        KINDS["rows"].clone(),
        KINDS["complex"].clone(),
        KINDS["scalar"].clone(),
    ]
    torch.manual_seed(0)
    news = [old + torch.randn(old.shape).to(old.dtype) for old in olds]
    news.append(torch.randn(6_000_000)[::3])  # of which an empty_like has other strides
    olds.append(torch.empty_like(news[-1]).zero_())
    news[4] = olds[4].clone()
    news[1][0, 0] = float("nan")
    apart = [truth(new.to(WIDE.get(new.dtype, new.dtype)) - old) for new, old in zip(news, olds, strict=True)]
    with torch.no_grad(), aside():
        found = changes_of(news, olds)
    assert found.values.tolist() == pytest.approx(apart, rel=1e-4, nan_ok=True)
    assert found.bad == {1: (1, 0)}
    assert all(torch.equal(new, old) or new is news[1] for new, old in zip(news, olds, strict=True))


def test_what_a_module_returned() -> None:
    t = torch.ones(1)
    assert [path for path, _ in tensors_in(t, torch.Tensor)] == ["output.0"]
    assert [path for path, _ in tensors_in((t, None, [t], {"x": t}), torch.Tensor)] == [
        "output.0",
        "output.2.0",
        "output.3.x",
    ]


@dataclasses.dataclass
class Answer:
    hidden: torch.Tensor
    rest: Any


class Opaque:
    """It holds a tensor where nobody looks."""

    def __init__(self, t: torch.Tensor) -> None:
        self.t = t


def test_every_tensor_in_what_a_module_returned_has_a_name_of_its_own() -> None:
    t, told = torch.ones(1), list[str]()
    given = Answer(t, UserDict({1: t, "1": t, "a.b": t, "a": {"b": t}, "opaque": Opaque(t)}))
    found = [path.removeprefix("output.") for path, _ in tensors_in(given, torch.Tensor, told.append)]
    assert found == ["hidden", "rest.1", "rest.1'", "rest.a.b", "rest.a.b'"]
    assert len(told) == 1 and "Opaque: no encoding" in told[0]
