"""The norms of task `watch` against float64, and the counts against what was planted."""

from __future__ import annotations

import numpy as np
import pytest
from probe_mindspore.watch.norms import changes_of, norms_of

WHOLE = np.random.default_rng(0).normal(size=300_001).astype(np.float32)
KINDS = {
    "large": WHOLE,
    "float64": WHOLE.astype(np.float64),
    "tiny": np.full(100, 1e-30, np.float32),
    "least": np.full(100, 1e-45, np.float32),
    "huge": np.full(100, 1e30, np.float32),
    "most": np.full(100, 3.4e38, np.float32),
    "zero": np.zeros(9, np.float32),
    "empty": np.zeros(0, np.float32),
    "one of many": np.append(np.zeros(1 << 18, np.float32), np.float32(1e-25)),
}


def truth(array: np.ndarray) -> float:
    return float(np.linalg.norm(array.astype(np.float64)))


def planted() -> np.ndarray:
    bad = WHOLE.copy()
    bad[[5, 200_000]], bad[7] = np.nan, -np.inf
    return bad


@pytest.mark.parametrize("kind", KINDS)
def test_a_norm_is_that_of_float64(kind: str) -> None:
    found = norms_of([WHOLE[:3], KINDS[kind]])
    assert found.values[1] == pytest.approx(truth(KINDS[kind]), rel=1e-4, abs=0.0)
    assert not found.bad


def test_counts_are_what_was_planted() -> None:
    worse = WHOLE[:1000].copy()
    worse[:3] = np.inf
    found = norms_of([WHOLE, planted(), worse, KINDS["most"]])
    assert np.isnan(found.values[1]) and np.isinf(found.values[2])
    assert found.bad == {1: (2, 1), 2: (0, 3)}


def test_changes_are_those_of_the_whole_and_copies_are_as_new() -> None:
    olds = [array.copy() for array in KINDS.values()]
    news = [old + (WHOLE[: old.size] if old.size <= WHOLE.size else 0) for old in olds]
    news[0] = planted()
    news = [new.astype(old.dtype) for new, old in zip(news, olds, strict=True)]
    with np.errstate(invalid="ignore"):
        apart = [truth(new.astype(np.float64) - old) for new, old in zip(news, olds, strict=True)]
    found = changes_of(zip(news, olds, strict=True))
    assert found.values[1:].tolist() == pytest.approx(apart[1:], rel=1e-4, abs=1e-38)
    assert found.bad == {0: (2, 1)}
    assert all(np.array_equal(new, old, equal_nan=True) for new, old in zip(news, olds, strict=True))
