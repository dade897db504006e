"""The steps of two processes never mix."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from contract_processes import *  # noqa: F403  the tests that both frameworks have
from contract_processes import names, whose
from dumping import write_config
from probe_torch import PrecisionDebugger


def test_a_forked_child_leaves_its_parents_steps_alone(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with PrecisionDebugger(str(write_config(tmp_path, level="mix", task="tensor"))) as debugger:

        def dump(number: float) -> None:
            with debugger.one_step(model):
                model(torch.ones(3, 2) * number).sum().backward()

        for number, forks in enumerate((True, True, False), start=1):
            if forks:
                child = os.fork()
                if not child:
                    try:
                        dump(-number)
                        dump(-number)
                    finally:
                        os._exit(0)
                os.waitpid(child, 0)
            dump(number)
    assert names(whose(tmp_path / "dump")) == [
        ("step0/proc", -1), ("step0/rank", 1), ("step1/proc", -2), ("step1/proc", -1), ("step1/rank", 2),
        ("step2/proc", -2), ("step2/rank", 3),
    ]  # fmt: skip
