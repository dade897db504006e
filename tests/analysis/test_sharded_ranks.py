"""Healthy ranks that divide the weights, or make other calls, are not called sick: FSDP, ZeRO, logging by one rank."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from probe_analysis import ranks
from rank_dumps import tensor, write

Records = dict[str, Any]


def dumped(
    folder: Path, each: Sequence[Records], inside: Mapping[str, str] | None = None, step: int = 0
) -> Path:
    """Write a step, the records of each rank. inside: part of a record's name -> what is around it."""
    for rank, records in enumerate(each):
        write(folder, rank, records, step)
        tree: dict[str, str | None] = {}
        for name in records:
            around = next((at for key, at in (inside or {}).items() if key in name), None)
            tree |= {around: None} if around else {}
            tree[name] = around
        (folder / f"step{step}/rank{rank}/construct.json").write_text(json.dumps(tree))
    return folder


def called(*given: Any, out: Any = None) -> Records:
    return {"input_args": [*given], "input_kwargs": {}, "output": [out or tensor()]}


def weights(**parameters: Any) -> Records:
    return {"input_args": [tensor(Max=9.5)], "input_kwargs": {}, "output": [], "parameters": parameters}


def flat(n: int, **keys: Any) -> Records:
    return tensor(shape=[n], **keys)


@pytest.mark.parametrize("orig", [False, True])
def test_gradients_of_parts_of_weights_are_not_compared(tmp_path: Path, orig: bool) -> None:
    """FSDP1 gathers the weights for the module, which gets them whole; a rank may have some gradients alone."""
    at, name = "Module._fsdp_wrapped_module.0.Linear", "weight" if orig else "_flat_param"
    whole, size = (tensor(shape=[4, 4]), 16) if orig else (flat(16), 8)
    each = []
    for rank in range(2):
        records: Records = {f"{at}.forward.0": weights(**{name: whole})}
        records[f"{at}.optimizer_grad"] = {name: [flat(size, Max=1.5 + rank)]}
        if orig:
            records[f"{at.replace('0', '12'[rank])}.parameters_grad"] = {"bias": [flat(4)]}
        each.append(records)
    found = ranks(dumped(tmp_path, each))
    assert found.first is None, found.sentence
    assert found.checked["weight"] == 1 and "update" not in found.checked
    assert any("update parts of weights" in note for note in found.notes)


def test_a_gradient_that_is_missing_is_found_where_each_rank_holds_all(tmp_path: Path) -> None:
    """FSDP1 with NO_SHARD, whose gradients have the shapes of the weights."""
    at = "Module._fsdp_wrapped_module.0.Linear"
    one: Records = {f"{at}.forward.0": weights(weight=tensor(shape=[4, 4]))}
    two = one | {f"{at}.parameters_grad": {"weight": [tensor(shape=[4, 4])]}}
    first = ranks(dumped(tmp_path, [one, two])).first
    assert first is not None and "Rank 0 has no" in first.sentence and "parameters_grad" in first.sentence


@pytest.mark.parametrize("recorded", ["functions", "gradients"])
def test_a_sharded_optimizer_is_not_compared(tmp_path: Path, recorded: str) -> None:
    """ZeRO: each rank updates some weights, with numbers of its own, and broadcasts them."""
    own, each = [tensor(shape=[2, 2], Max=2.5), tensor(shape=[2, 2], Max=3.5)], []
    for rank in range(2):
        records: Records = {"Module.0.Linear.forward.0": weights(weight=own[0])}
        records["Module.1.Linear.forward.0"] = weights(weight=own[1])
        for name in ("Module.0.Linear.optimizer_grad", "Module.1.Linear.optimizer_grad"):
            records |= {name: {"weight": [own[0]]}} if recorded == "gradients" else {}
        if recorded == "gradients":
            records[f"Module.{rank}.Linear.optimizer_grad.1"] = {"weight": [own[0]]}
        else:
            decay = {"type": "float", "value": 0.75 + rank / 8}
            records["Tensor.mul_.0.forward"] = called(own[rank], decay)
            records |= {"Tensor.add_.0.forward": called(own[1], own[1])} if rank else {}
            for n, weight in enumerate(own):
                records[f"Distributed.broadcast.{n}.forward"] = called(weight)
        each.append(records)
    found = ranks(dumped(tmp_path, each, {"Tensor": "optimizer", "Distributed": "optimizer"}))
    assert found.first is None, found.sentence
    assert any("the ranks update different weights" in note for note in found.notes)


def test_a_step_that_one_optimizer_makes_more_is_found(tmp_path: Path) -> None:
    each = []
    for rank in range(2):
        records: Records = {"Module.0.Linear.forward.0": weights(weight=tensor())}
        for more in ("", ".1")[: rank + 1]:
            records[f"Module.0.Linear.optimizer_grad{more}"] = {"weight": [tensor()]}
        each.append(records)
    first = ranks(dumped(tmp_path, each)).first
    assert first is not None and "Rank 0 has no Module.0.Linear.optimizer_grad.1" in first.sentence


def placed(rank: int, *shapes: Sequence[int], kind: str = "Shard", **keys: Any) -> Records:
    """A DTensor of two ranks; its whole shape, and that of a rank's part where it is another."""
    how: Records = {kind: {"dim": 0} if kind == "Shard" else {}}
    parts = {"device_mesh": [0, 1], "placements": [how], "global_shape": [*shapes[0]]}
    return tensor(shape=[*shapes[-1]], **keys) | parts


def test_uneven_shards_are_the_same_calls(tmp_path: Path) -> None:
    """Rank 0 alone logs. Of a weight with one row rank 1 holds nothing, as of another all: the shapes cross over."""
    each = []
    for rank in range(2):
        one, two = ([1 - rank, 3], [rank, 3])
        records = {"Torch.exp.0.forward": called(tensor())} if not rank else {}
        for n, (whole, part) in enumerate([([1, 3], one), ([2, 3], two), ([1, 3], one), ([2, 3], two)]):
            records[f"Tensor.mul_.{n}.forward"] = called(placed(rank, whole, part))
        each.append(records | {"Module.0.Linear.forward.0": weights(weight=tensor())})
    found = ranks(dumped(tmp_path, each, {"mul_": "optimizer"}))
    assert found.first is None, found.sentence
    alone = "1 function calls are made by some ranks alone, as Torch.exp.0.forward by rank 0."
    assert f"step0: {alone}" in found.notes


@pytest.mark.parametrize("kind", ["Shard", "Replicate"])
def test_dtensors_of_different_parameters_are_not_compared(tmp_path: Path, kind: str) -> None:
    """Rank 0 alone calls the function for its log, on a tensor of its own, and on a DTensor: the numbers move on."""
    for more in (False, True):
        each = []
        for rank in range(2):
            given = [placed(rank, [4], kind=kind), placed(rank, [8], kind=kind, Max=2.5)]
            own = [placed(rank, [6], kind=kind, Max=3.5)] * more + [tensor()]
            names = (f"Tensor.mul_.{n}.forward" for n in range(len(given + own)))
            each.append(dict(zip(names, map(called, own * (not rank) + given), strict=False)))
        inside = {f"mul_.{n}": "optimizer" for n in range(1 + more, 5)}
        folder = dumped(tmp_path / str(more), [each[0]], inside)
        dumped(folder / "other", [{}, each[1]], {"mul_": "optimizer"})
        (folder / "other/step0/rank1").rename(folder / "step0/rank1")
        found = ranks(folder)
        assert found.first is None, found.sentence
        assert found.checked.get("placement", 0) == (0 if kind == "Shard" else 2)


def test_where_one_rank_makes_more_calls_the_rest_are_not_told_apart(tmp_path: Path) -> None:
    each = [
        {
            f"Tensor.mul_.{n}.forward": called(placed(rank, [4], kind="Replicate", Max=n + 1.5))
            for n in range(rank, 3)
        }
        for rank in range(2)
    ]
    each[1] = {f"Tensor.mul_.{n}.forward": call for n, call in enumerate(each[1].values())}
    each[0] = {**each[0], "Tensor.add_.0.forward": called(placed(0, [4], kind="Replicate"))}
    each[1] = {**each[1], "Tensor.add_.0.forward": called(placed(1, [4], kind="Replicate", Max=2.5))}
    first = ranks(dumped(tmp_path, each)).first
    assert first is not None and first.call.name == "Tensor.add_.0.forward", first.sentence


def ends(high: float, low: float, highs: int, lows: int, shape: Sequence[int]) -> Records:
    """The statistics of so many of the largest and smallest numbers, and zeros."""
    lows *= high != low
    total, squares = highs * high + lows * low, highs * high**2 + lows * low**2
    return tensor(shape=[*shape], Max=high, Min=low, Mean=total / math.prod(shape), Norm=squares**0.5)


ORDERED = tensor(Max=1.25, Min=-0.75, Mean=0.1, Norm=1.5)
#: What a function is, what it is given, and whether other results for it are a fault.
GIVEN = {
    "measured": ("Torch.exp", [ORDERED], True),
    "a weight beside it": ("Functional.linear", [ORDERED, ORDERED], True),
    "two tensors, of which one may be in another order": ("Tensor.__add__", [ORDERED, ORDERED], False),
    "two tensors with checksums": ("Tensor.__add__", [ORDERED | {"md5": "1a"}] * 2, True),
    "a part of it": ("Torch.split", [ORDERED], False),
    "a part of it, with a checksum": ("Torch.split", [ORDERED | {"md5": "1a"}], True),
    "two numbers in some order": ("Torch.cumsum", [ends(0.7, 0.1, 3, 5, [8])], False),
    "a row of labels": ("Torch.flip", [ends(0.7, 0.0, 8, 0, [8, 4])], False),
    "one number": ("Torch.exp", [ends(0.7, 0.7, 8, 0, [8])], True),
    "a few of memory that nobody wrote": ("Torch.exp", [ends(1.3e37, -2.6e36, 2, 1, [144])], False),
    "infinities": ("Torch.exp", [ORDERED | {"Min": -math.inf, "Mean": -math.inf, "Norm": math.inf}], False),
}


@pytest.mark.parametrize("given", GIVEN)
def test_equal_statistics_are_equal_tensors_only_where_they_tell(tmp_path: Path, given: str) -> None:
    name, took, blamed = GIVEN[given]
    each = [
        {f"{name}.0.forward": called(*took, out=tensor(Norm=2.0 + rank, md5=str(rank)))} for rank in range(2)
    ]
    found = ranks(dumped(tmp_path, each))
    assert (found.first is not None) == blamed, found.sentence


@pytest.mark.parametrize("named", ["Torch._foreach_copy_", "Tensor.narrow", "Tensor.copy_"])
def test_what_is_only_copied_or_cut_is_no_constant(tmp_path: Path, named: str) -> None:
    """FSDP2 copies a rank's own shards of frozen weights, the same in each step, into memory that nobody wrote."""
    for step in range(2):
        each = []
        for rank in range(2):
            x, own = tensor(Max=1.5 + rank + step / 8), tensor(shape=[8], Max=2.5 + rank)
            each.append({"Torch.relu.0.forward": called(x), f"{named}.0.forward": called([own], out=own)})
        dumped(tmp_path, each, step=step)
    found = ranks(tmp_path, groups=[[0, 1]])
    assert found.first is None, found.sentence


def test_a_constant_that_was_cut_is_found_where_it_is_used(tmp_path: Path) -> None:
    for step in range(2):
        each = []
        for rank in range(2):
            x, table = tensor(Max=1.5 + rank + step / 8), tensor(shape=[8], Max=2.5, Norm=4.5 + rank)
            cut = table | {"shape": [4], "Norm": 3.5 + rank}
            records = {"Torch.relu.0.forward": called(x), "Tensor.narrow.0.forward": called(table, out=cut)}
            each.append(records | {"Tensor.__add__.0.forward": called(x, cut)})
        dumped(tmp_path, each, step=step)
    first = ranks(tmp_path).first
    assert first is not None and (first.call.name, first.reason) == ("Tensor.__add__.0.forward", "constant")


@pytest.mark.parametrize("inside", [False, True])
def test_others_are_said_to_wait_only_where_a_collective_call_is_missing(
    tmp_path: Path, inside: bool
) -> None:
    """Rank 0 alone evaluates."""
    one: Records = {"Module.0.Linear.forward.0": weights(weight=tensor())}
    two = {"Module.0.Linear.forward.1": weights(weight=tensor())}
    summed = {
        "Functional.linear.0.forward" if not inside else "Distributed.all_reduce.0.forward": called(tensor())
    }
    around = {"linear": "Module.0.Linear.forward.1", "all_reduce": "Module.0.Linear.forward.1"}
    found = ranks(dumped(tmp_path, [{**one, **summed, **two}, one], around))
    said = [each.sentence for each in found.disagreements if each.call.name == "Module.0.Linear.forward.1"]
    assert len(said) == 1 and "has no counterpart on rank 1" in said[0]
    assert ("the run can hang" in said[0]) == inside
    assert ("No collective call is recorded inside of it" in said[0]) != inside


def piped(folder: Path, first: Sequence[float], grads: Sequence[float], then: Sequence[float]) -> Path:
    """Write two steps of ranks that send tensors: of each the weight in both, and what the optimizer gets beside it."""
    for step, held in enumerate((first, then)):
        each = []
        for weight, grad in zip(held, grads, strict=True):
            own = tensor(Norm=weight, requires_grad=True)
            records: Records = {"Module.0.Linear.forward.0": weights(weight=own)}
            records["Distributed.send.0.forward"] = called(tensor())
            if grad:
                records["Tensor.mul_.0.forward"] = called(own, out=tensor(Norm=weight / 2))
                records["Tensor.add_.0.forward"] = called(tensor(Norm=weight / 2), tensor(Norm=grad + step))
                records["Tensor.addcdiv_.0.forward"] = called(tensor(Norm=grad + step + 0.5))
            each.append(records)
        dumped(folder, each, {"Tensor.": "optimizer"}, step)
    return folder


@pytest.mark.parametrize("grads", [(4.0, 5.0, 6.0), (0, 0, 0)])
@pytest.mark.parametrize("last", [2.0, 3.0])
def test_stages_of_one_seed_are_no_replicas(
    grads: tuple[float, float, float], last: float, tmp_path: Path
) -> None:
    """Of equal shape, maybe all but the last one; also where no update is recorded (level L0)."""
    found = ranks(piped(tmp_path, (2.0, 2.0, last), grads, (2.25, 2.5, 2.75)))
    assert found.first is None, found.sentence
    assert "weight" not in found.checked
    assert "they may be stages of a pipeline. --groups says which are replicas" in found.replicas.why


@pytest.mark.parametrize("first", [(2.0, 2.0, 2.0, 2.0), (2.0, 3.0, 2.0, 3.0)])
def test_replicas_that_send_tensors_are_compared(first: Sequence[float], tmp_path: Path) -> None:
    """Of one model, as with ring attention, or two replicas of each stage: what rank 2 does wrong later is found."""
    grads = [each + 2.0 for each in first]
    then = [each + 0.25 for each in first]
    then[2] += 0.5
    found = ranks(piped(tmp_path, first, grads, then)).first
    assert found is not None and (found.step, found.reason) == ("step1", "weight"), found
    assert any(2 in group and 0 not in group for group in found.parting)


def test_stages_that_update_nothing_recorded_are_compared_with_their_replicas(tmp_path: Path) -> None:
    found = ranks(piped(tmp_path, (2.0, 3.0, 2.0, 3.0), (0, 0, 0, 0), (2.25, 3.25, 2.5, 3.25))).first
    assert found is not None and found.parting == ((0,), (2,))
