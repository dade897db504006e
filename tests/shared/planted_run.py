"""Steps of training in several processes, one of which gets a bad number in one of them (see contract_planted.py).

The programs beside the tests of each framework call `train`. They take a JSON object: `out`, a folder; `seeds`;
`steps`, how many each run has; `kind`, `nan`, `spike` or `unreduced`; `last`, how many steps are kept.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

__all__ = ["FACTORS", "Planted", "train"]

#: What the inputs of the bad step are multiplied by; of the last kind the gradients of one rank are not averaged.
FACTORS = {"nan": float("nan"), "spike": 100.0, "unreduced": -1.0}
#: Steps before this one are not planted in: a median is of ten values.
FIRST = 12


@attrs.frozen
class Planted:
    """What is planted where, by its seed."""

    step: int
    rank: int

    @classmethod
    def of(cls, seed: int, steps: int, ranks: int) -> Planted:
        chance = random.Random(seed)
        return cls(chance.randrange(FIRST, steps - 3), chance.randrange(ranks))


def train(
    request: Mapping[str, Any],
    rank: int,
    ranks: int,
    debugger: Callable[..., Any],
    made: Callable[[int], tuple[Any, Callable[[float], float]]],
) -> None:
    """Make the runs of a request, one after the other.

    debugger: makes the framework's debugger.
    made: takes a seed and returns a net, and a function that trains it for one step, with one of `FACTORS` or 1, and
        returns the loss, or another value that a bad step makes large.
    """
    for seed in request["seeds"]:
        faulthandler.dump_traceback_later(600 + request["steps"], exit=True)  # a run that hangs says where
        planted = Planted.of(seed, request["steps"], ranks)
        dump = Path(request["out"]) / str(seed)
        net, step = made(seed)
        keys = {"keep": {"last": request["last"]}, "then": {"level": "mix", "task": "tensor"}}
        keys["when"] = ["non_finite"] if request["kind"] == "nan" else ["spike(loss) > 5"]
        if request["kind"] == "unreduced":
            keys["optimizer_grad"] = True
        most = 0
        with debugger(dump_path=dump, level="L0", **keys) as watching:
            for number in range(request["steps"]):
                is_bad = number == planted.step and rank == planted.rank
                factor = FACTORS[request["kind"]] if is_bad else 1.0
                watching.start(net)
                watching.observe("loss", step(factor))
                watching.stop()
                watching.step()
                most = max(most, sum(name.startswith("step") for name in os.listdir(dump)))
        Path(request["out"], f"{seed}.{rank}.json").write_text(json.dumps({"most": most}))
