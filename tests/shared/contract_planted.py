"""A bad number in a random step of a random rank: what is left is the steps around it, on every rank; and it is found.

Few steps of few runs by default; with PROBE_SOAK=1 twenty runs of 200 steps for each kind, and three of 2,000.

The folder that imports it has the fixture ``planted``, which runs its program on two processes with a request for
`planted_run.train`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from contract_processes import processes  # noqa: F401  a fixture
from planted_run import Planted
from probe_analysis import first_non_finite
from probe_format.cli.main import main as probe
from probe_format.layout import find_steps
from probe_format.read import verify

SOAK = bool(os.environ.get("PROBE_SOAK"))
RUNS, STEPS, KILLS = (20, 200, 50) if SOAK else (1, 32, 2)
LAST = 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "runs", "steps"), [("nan", RUNS, STEPS), ("spike", RUNS, STEPS), *[("nan", 3, 2000)] * SOAK]
)
def test_a_bad_number_is_found_on_every_rank(
    planted: Any, tmp_path: Path, kind: str, runs: int, steps: int
) -> None:
    first = random.Random(kind).randrange(1000)
    seeds = list(range(first, first + runs))
    planted({"out": str(tmp_path), "seeds": seeds, "steps": steps, "kind": kind, "last": LAST})
    for seed in seeds:
        check(tmp_path, seed, kind, steps)


def check(out: Path, seed: int, kind: str, steps: int) -> None:
    dump, where = out / str(seed), Planted.of(seed, steps, 2)
    around = {*range(where.step - LAST + 1, where.step + 1), where.step + 2}
    left = sorted({*around, *range(steps - LAST, steps)})
    assert [each.step for each in find_steps(dump)] == left, (seed, where)
    assert {verdict.state for verdict in verify(dump)} == {"complete"}, (seed, where)
    for rank in (0, 1):
        reports = {n: json.loads((dump / f"step{n}/rank{rank}/report.json").read_text()) for n in left}
        detailed = [n for n, report in reports.items() if report["header"]["level"] == "mix"]
        assert detailed == [where.step + 2], (seed, where, rank)
        header = reports[where.step + 2]["header"]
        assert header["task"] == "tensor" and header["triggered"]["rank"] == where.rank, (seed, where)
        assert [n for n in left if "triggers" in reports[n]] == [where.step], (seed, where, rank)
        assert {told["rank"] for told in reports[where.step]["triggers"]} == {where.rank}, (seed, where)
        most = json.loads((out / f"{seed}.{rank}.json").read_text())["most"]
        assert most <= 2 * LAST + 3, (seed, where, most)
    if kind == "nan":
        found = first_non_finite(dump).first
        assert found is not None and "Planted.forward.0" in found.call.name, (seed, where)
        assert (found.run.rank.step, found.run.rank.number) == (where.step, where.rank), seed


@pytest.mark.slow
def test_after_a_kill_what_the_ring_promised_is_recovered(processes: Any, tmp_path: Path) -> None:  # noqa: F811
    """Kill runs at random instants, while a trigger keeps steps, dumps the next in detail, and others are removed."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    keys = {"level": "L0", "task": "statistics", "keep": {"last": LAST}, "when": ["SIGUSR1"]}
    then = {"level": "mix", "task": "tensor", "times": 3}
    for kill in range(KILLS):
        dump, where = tmp_path / "dump", f"kill {kill} of seed {seed}"
        run = processes(**keys, then=then).process
        told = chance.randrange(4) + LAST
        for step in range(told + 1):
            if step == told:
                os.kill(run.pid, signal.SIGUSR1)
            said = "start\nstop\n" + "step\n" * (step < told)
            run.stdin.write(said)
            run.stdin.flush()
            assert [run.stdout.readline() for _ in range(said.count("\n"))] == ["done\n"] * said.count(
                "\n"
            ), run.communicate()[1]
        run.stdin.write("step\n" + "start\nstop\nstep\n" * (LAST + 2))
        run.stdin.flush()
        for _ in range(chance.randrange(3 * (LAST + 2))):
            run.stdout.readline()
        time.sleep(chance.random() * 0.03)
        os.kill(run.pid, signal.SIGKILL)
        run.communicate()
        assert probe(["recover", str(dump)]) in (0, 1), where
        states = {int(v.path.parent.name[4:]): v.state for v in verify(dump)}
        whole = sorted(n for n, state in states.items() if state in ("complete", "recovered"))
        assert len(states) - len(whole) == [*states.values()].count("empty") <= 1, (where, states)
        last = whole[-1]
        kept = {n for n in whole if "triggers" in _report(dump, n)}
        assert kept <= {told}, (where, states)
        around = {*range(told - LAST + 1, told + 1)} if kept else set()
        detailed = {n for n in whole if _report(dump, n)["header"]["level"] == "mix"}
        assert detailed <= {told + 1}, (where, states)
        ring = {*range(max(last - LAST + 2, 0), last + 1)}  # of the last one it is not known that it ended
        assert around | ring <= set(whole), (where, states)
        assert len(whole) <= 2 * LAST + 2 and not set(whole) - around - detailed - {
            *range(last - LAST - 1, last + 1)
        }, (where, states)
        shutil.rmtree(dump)


def _report(dump: Path, step: int) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((dump / f"step{step}" / "rank" / "report.json").read_text())
    return report
