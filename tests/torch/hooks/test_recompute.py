"""Activation checkpoints: recomputed calls are known by the numbers of the first run, and nothing else changes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
import torch.utils.checkpoint as checkpoint
from probe_runtime.collect.recompute import Recomputation, Segment, SegmentState
from probe_torch.hooks.recompute import watched_checkpoints
from torch import Tensor

KINDS = pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])


class Calls:
    """Numbers calls as the collector does, and remembers what each was."""

    def __init__(self) -> None:
        self.state = SegmentState()
        self.counters: dict[str, itertools.count[int]] = {}
        self.all: list[tuple[str, int, str]] = []

    def call(self, key: str) -> None:
        replay, segment = self.state.replay, self.state.segment
        if replay is not None and (known := replay.number(key)) is not None:
            self.all.append((key, known, "again"))
            return
        number = next(self.counters.setdefault(key, itertools.count()))
        if segment is not None:
            segment.numbers.setdefault(key, []).append(number)
        self.all.append((key, number, "inside" if segment is not None or replay is not None else "outside"))

    def block(self, *keys: str) -> Callable[[Tensor], Tensor]:
        """A function that makes these calls and needs its input for the gradient."""

        def run(x: Tensor) -> Tensor:
            for key in keys:
                self.call(key)
                x = torch.sin(x)
            return x

        return run

    def kinds(self, kind: str) -> list[tuple[str, int]]:
        return [(key, number) for key, number, k in self.all if k == kind]


@pytest.fixture
def calls() -> Iterator[Calls]:
    made = Calls()
    with watched_checkpoints(made.state):
        yield made
    assert made.state.segment is None
    assert made.state.replay is None


def start() -> Tensor:
    return torch.linspace(0.1, 1, 4).requires_grad_()


@KINDS
def test_recomputed_calls_have_the_numbers_of_the_first_run(calls: Calls, reentrant: bool) -> None:
    calls.call("a")
    x = start()
    y = checkpoint.checkpoint(calls.block("a", "b", "a"), x, use_reentrant=reentrant)
    calls.call("a")
    z = checkpoint.checkpoint(calls.block("a", "b"), y, use_reentrant=reentrant)
    z.sum().backward()
    calls.call("a")
    assert calls.kinds("inside") == [("a", 1), ("b", 0), ("a", 2), ("a", 4), ("b", 1)]
    again = calls.kinds("again")
    assert again[:1] == [("a", 4)]  # the last block first
    assert set(again) <= set(calls.kinds("inside"))
    assert ("a", 1) in again
    assert calls.kinds("outside") == [("a", 0), ("a", 3), ("a", 5)]


@KINDS
def test_checkpoints_inside_checkpoints(calls: Calls, reentrant: bool) -> None:
    def outer(x: Tensor) -> Tensor:
        calls.call("o")
        return checkpoint.checkpoint(calls.block("i", "i"), torch.cos(x), use_reentrant=reentrant).cos()  # type: ignore[no-any-return]

    checkpoint.checkpoint(outer, start(), use_reentrant=reentrant).sum().backward()
    assert calls.kinds("inside") == [("o", 0), ("i", 0), ("i", 1)]
    assert set(calls.kinds("again")) == {("o", 0), ("i", 0), ("i", 1)}
    assert not calls.kinds("outside")


def test_a_graph_that_is_kept_is_recomputed_for_each_pass(calls: Calls) -> None:
    y = checkpoint.checkpoint(calls.block("a", "a"), start(), use_reentrant=False).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert calls.kinds("inside") == [("a", 0), ("a", 1)]
    assert calls.kinds("again") == [("a", 0), ("a", 1)] * 2


def test_a_recomputation_that_makes_more_calls_goes_on_counting(calls: Calls) -> None:
    times = itertools.count()

    def block(x: Tensor) -> Tensor:
        for _ in range(1 + next(times)):
            calls.call("a")
        return torch.sin(x)

    checkpoint.checkpoint(block, start(), use_reentrant=False, determinism_check="none").sum().backward()
    assert calls.all == [("a", 0, "inside"), ("a", 0, "again"), ("a", 1, "inside")]


@KINDS
def test_an_exception_leaves_nothing_behind(calls: Calls, reentrant: bool) -> None:
    def bad(x: Tensor) -> Tensor:
        calls.call("a")
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        checkpoint.checkpoint(bad, start(), use_reentrant=reentrant)
    assert calls.state.segment is None
    calls.call("a")
    assert calls.all == [("a", 0, "inside"), ("a", 1, "outside")]


@KINDS
def test_an_exception_while_recomputing_leaves_nothing_behind(calls: Calls, reentrant: bool) -> None:
    times = itertools.count()

    def bad(x: Tensor) -> Tensor:
        calls.call("a")
        if next(times):
            raise ValueError("mine")
        return torch.sin(x)

    y = checkpoint.checkpoint(bad, start(), use_reentrant=reentrant)
    with pytest.raises(ValueError, match="mine"):
        y.sum().backward()
    assert calls.state.replay is None
    calls.call("a")
    assert calls.all == [("a", 0, "inside"), ("a", 0, "again"), ("a", 1, "outside")]


def test_the_users_own_contexts_are_entered_around_both_runs(calls: Calls) -> None:
    seen: list[str] = []

    @contextmanager
    def told(name: str) -> Iterator[None]:
        seen.append(f"+{name}")
        try:
            yield
        finally:
            seen.append(f"-{name}")

    def contexts() -> Any:
        return told("first"), told("again")

    y = checkpoint.checkpoint(calls.block("a"), start(), use_reentrant=False, context_fn=contexts)
    y.sum().backward()
    assert seen == ["+first", "-first", "+again", "-again"]
    assert [kind for *_, kind in calls.all] == ["inside", "again"]


def test_a_users_context_that_fails_leaves_nothing_behind(calls: Calls) -> None:
    @contextmanager
    def broken() -> Iterator[None]:
        raise ValueError("mine")
        yield

    def contexts() -> Any:
        return broken(), broken()

    with pytest.raises(ValueError, match="mine"):
        checkpoint.checkpoint(calls.block("a"), start(), use_reentrant=False, context_fn=contexts)
    assert calls.state.segment is None


def test_arguments_go_through(calls: Calls) -> None:
    def block(x: Tensor, n: int, *, scale: float) -> Tensor:
        return torch.sin(x) * n * scale

    y = checkpoint.checkpoint(
        block, start(), 2, scale=3.0, use_reentrant=False, preserve_rng_state=False, debug=False
    )
    assert torch.equal(y, torch.sin(start()) * 2 * 3.0)
    y.sum().backward()
    z = checkpoint.checkpoint_sequential([calls.block("a"), calls.block("b")], 2, start(), use_reentrant=True)
    z.sum().backward()
    assert ("a", 0, "again") in calls.all


@pytest.mark.parametrize(
    "asked",
    [
        {"debug": True},
        {
            "context_fn": partial(
                checkpoint.create_selective_checkpoint_contexts, [torch.ops.aten.sin.default]
            )
        },
        {"determinism_check": "none"},
    ],
    ids=["debug", "selective", "unchecked"],
)
def test_what_a_checkpoint_is_asked_for_stays(calls: Calls, asked: dict[str, Any]) -> None:
    """With ``debug`` torch refuses contexts, so that none of ours may be among what it is given."""
    x = start()
    checkpoint.checkpoint(calls.block("a", "b"), x, use_reentrant=False, **asked).sum().backward()
    assert calls.kinds("inside") == [("a", 0), ("b", 0)]
    assert ("a", 0) in calls.kinds("again")
    expected = start()
    torch.sin(torch.sin(expected)).sum().backward()
    assert x.grad is not None and expected.grad is not None
    assert torch.equal(x.grad, expected.grad)


@KINDS
def test_threads_do_not_see_each_others_segments(calls: Calls, reentrant: bool) -> None:
    inside, go = threading.Event(), threading.Event()
    others: list[Any] = []

    def block(x: Tensor) -> Tensor:
        inside.set()
        assert go.wait(30)
        return torch.sin(x)

    def look() -> None:
        assert inside.wait(30)
        others.append((calls.state.segment, calls.state.replay))
        go.set()

    thread = threading.Thread(target=look)
    thread.start()
    checkpoint.checkpoint(block, start(), use_reentrant=reentrant).sum().backward()
    thread.join()
    assert others == [(None, None)]


def test_everything_is_put_back_whatever_happens() -> None:
    before = dict(vars(checkpoint))
    function = checkpoint.CheckpointFunction
    with pytest.raises(ValueError, match="mine"), watched_checkpoints(SegmentState()):
        assert checkpoint.CheckpointFunction is not function
        assert checkpoint.CheckpointFunction.__name__ == "CheckpointFunction"
        raise ValueError("mine")
    assert dict(vars(checkpoint)) == before


@KINDS
def test_a_backward_pass_after_leaving_is_an_ordinary_one(reentrant: bool) -> None:
    made = Calls()
    with watched_checkpoints(made.state):
        y = checkpoint.checkpoint(made.block("a"), start(), use_reentrant=reentrant)
    y.sum().backward()
    assert made.all == [("a", 0, "inside"), ("a", 0, "again")]  # it still is that segment's recomputation
    z = checkpoint.checkpoint(made.block("a"), start(), use_reentrant=reentrant)
    z.sum().backward()
    assert made.all[2:] == [("a", 1, "outside"), ("a", 2, "outside")]


def test_a_replay_hands_out_each_number_once() -> None:
    replay = Recomputation(Segment(False, {"a": [3, 7]}))
    assert [replay.number("a") for _ in range(3)] == [3, 7, None]
    assert replay.number("b") is None
