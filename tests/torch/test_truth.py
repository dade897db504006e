"""Promise 2: every recorded number is the true one, and so is every tensor file. The truth is `witness`'s."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from documents import objects
from dumping import agrees, load, opened, records
from probe_runtime.collect import UNTOLD
from torch import Tensor
from witness import Path as Slot
from witness import Seen, Witness, plainly, tensors

Json = Any
VARIANTS = ("plain", "autocast")


class Jury:
    """Compares records with the truth; counts what was compared and collects what is wrong."""

    def __init__(self, dump: Path) -> None:
        self.dump = dump
        self.compared = 0
        self.wrong: list[str] = []

    def same(self, name: str, found: dict[Slot, Json], truth: dict[Slot, Tensor], *, exact: bool) -> None:
        """The places are the same, and the numbers and the file in each."""
        for slot in sorted(found.keys() ^ truth.keys()):
            self.wrong.append(f"{name} {slot}: {'nothing true' if slot in found else 'nothing recorded'}")
        for slot in found.keys() & truth.keys():
            self.compared += 1
            leaf, t = found[slot], truth[slot].cpu()
            if not exact and not agrees(leaf, t, 2e-2 if t.dtype is torch.bfloat16 else 1e-4):
                self.wrong.append(f"{name} {slot}: {leaf} is not {t.flatten()[:4].tolist()}")
                continue
            if leaf["dtype"] != str(t.dtype) or leaf["shape"] != list(t.shape):
                self.wrong.append(f"{name} {slot}: {leaf} is not {t.dtype} {list(t.shape)}")
            elif t.numel():
                file = load(self.dump, leaf)
                right = not zoo.differences({"": file}, {"": t}) if exact else _near(file, t)
                if not right or not _describes(leaf, file):
                    self.wrong.append(
                        f"{name} {slot}: the file {file.flatten()[:4]} is not {t.flatten()[:4]}"
                    )


def _describes(leaf: Json, t: Tensor) -> bool:
    """Whether the four statistics are those of the tensor; what is not finite has tests of its own."""
    return not t.dtype.is_floating_point or not bool(torch.isfinite(t).all()) or agrees(leaf, t, 1e-4)


def _near(a: Tensor, b: Tensor) -> bool:
    """Equal but for the order of sums, in units of the largest element."""
    digits = 2e-2 if torch.bfloat16 in (a.dtype, b.dtype) else 1e-4
    scale = max(float(b.detach().abs().max()), 1e-30)
    return bool(((a.double() - b.double()).abs() <= digits * scale).all())


@pytest.fixture(autouse=True)
def filled_memory() -> Iterator[None]:
    """What `torch.empty` gives is NaN in both runs, and not what lay there before."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", zoo.CASES)
def test_every_recorded_value_is_the_true_one(case: str, variant: str, tmp_path: Path) -> None:
    witness = Witness()
    try:
        zoo.train(zoo.CASES[case], zoo.VARIANTS[variant], witness, steps=1)
    except RuntimeError as e:
        if "could not create a primitive" not in str(e):
            raise
        witness.stop()  # or it would watch every later test of this process
        pytest.skip(f"PyTorch alone cannot do this on this processor: {e}")
    with opened(tmp_path, level="mix", task="tensor", step=[0]) as debugger:
        zoo.train(zoo.CASES[case], zoo.VARIANTS[variant], debugger, steps=1)
    found = records(tmp_path / "dump")
    jury = Jury(tmp_path / "dump")
    counts: Counter[str] = Counter()
    forward = [name for name in found if name.endswith(".forward") or ".forward." in name]
    for name in forward:
        if found[name].get("in_backward"):  # a custom function's own backward, which no function mode sees
            assert case == "oddities"
            continue
        seen = witness.calls[name if name.startswith("Module.") else numbered(name, counts)]
        record = found[name]
        slots = [*record["input_args"], *record["input_kwargs"].values()]
        places = seen.places(len(record["input_args"]), record["input_kwargs"])
        jury.same(name, renamed(slots, places), seen.given, exact=True)
        jury.same(name, objects({"output": record["output"]}), seen.gave, exact=True)
        backward = found.get(name.replace(".forward", ".backward"))
        if backward is not None:
            with zoo.fixed(0):  # the threads of the run: sums in another order are other numbers
                judge_backward(jury, name, backward, seen, places)
        elif seen.grads:
            jury.wrong.append(f"{name}: gradients came, and there is no backward record")
    judge_parameters(jury, found, witness)
    assert not jury.wrong, f"{len(jury.wrong)} of {jury.compared} are wrong: " + "\n".join(jury.wrong[:20])
    assert jury.compared > 100


def numbered(name: str, counts: Counter[str]) -> str:
    """What the witness calls this function's call: its plain name, counted anew."""
    api = plainly(name.rsplit(".", 2)[0])
    counts[api] += 1
    return f"{api}.{counts[api] - 1}.forward"


def renamed(slots: list[Json], places: list[str]) -> dict[Slot, Json]:
    """The tensor objects of a call's arguments, each by the name of its argument."""
    return {(places[int(path[0])], *path[1:]): leaf for path, leaf in objects(slots).items()}


def judge_backward(jury: Jury, name: str, record: Json, seen: Seen, places: list[str]) -> None:
    """The gradients of a call's outputs, and what it sent back to its inputs."""
    if (
        seen.views
    ):  # its own test has the truth of these: the hooks of a witness don't see a view that was written
        return
    grads = {(("0", *slot) if seen.named else slot): g for slot, g in seen.grads.items()}
    untold = {(("0", *slot) if seen.named else slot) for slot in seen.untold}
    made, given = objects(record["input"]), renamed(record["output"], places)
    assert {slot for slot, leaf in made.items() if leaf.get("unsupported") == UNTOLD} == untold & made.keys()
    unknown = {slot for slot, leaf in given.items() if leaf.get("unsupported") == UNTOLD}
    assert unknown <= seen.passed_on
    jury.same(f"{name} backward.input", *(_without(found, untold) for found in (made, grads)), exact=True)
    jury.same(
        f"{name} backward.output",
        *(_without(found, unknown) for found in (given, seen.contributions())),
        exact=False,
    )


def _without(found: dict[Slot, Any], slots: set[Slot]) -> dict[Slot, Any]:
    return {slot: value for slot, value in found.items() if slot not in slots}


def judge_parameters(jury: Jury, found: dict[str, Json], witness: Witness) -> None:
    """The gradient of every parameter, at each arrival, under the first of its owners."""
    for key, arrivals in witness.parameters.items():
        base, own = key.split("/")
        for i, grad in enumerate(arrivals):
            record = found[base if i == 0 else f"{base}.{i}"]
            jury.same(base, {(own,): record[own][0]}, {(own,): grad}, exact=True)


def test_the_jury_can_convict(tmp_path: Path) -> None:
    """One wrong number, one missing value and one value too many are each found."""
    witness = Witness()
    zoo.train(zoo.CASES["gpt"], zoo.PLAIN, witness, steps=1)
    with opened(tmp_path, level="mix", task="tensor", step=[0]) as debugger:
        zoo.train(zoo.CASES["gpt"], zoo.PLAIN, debugger, steps=1)
    name, record = next((n, r) for n, r in records(tmp_path / "dump").items() if n.startswith("Module"))
    seen = witness.calls[name]
    right = objects({"output": record["output"]})
    for fault in ("number", "missing", "extra"):
        jury = Jury(tmp_path / "dump")
        truth = dict(seen.gave)
        if fault == "number":
            truth = {slot: t * 1.0001 for slot, t in truth.items()}
        elif fault == "missing":
            truth["output", "9"] = torch.ones(1)
        else:
            truth.popitem()
        jury.same(name, right, truth, exact=True)
        assert jury.wrong, fault
    assert list(tensors(seen.args))
