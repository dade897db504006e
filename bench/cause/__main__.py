"""Race for the first cause: make pairs by a seed, and print whose cause `probe diff` names, by kind.

python -m bench.cause [--faulty 40] [--honest 20] [--seed 0] [--jobs 1] [--sketch] [--bf16] [--final] [--wide 1]
    [--within SECONDS] [--keep FOLDER]
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from .faults import FAULTS
from .grade import GRADES
from .networks import NETWORKS, missing
from .outcome import Outcome, outcome_of
from .pairs import Pair, drawn, pair_options


def main() -> None:
    """Make the pairs, compare each, and print a table and the pairs that were not named."""
    parser = pair_options(__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="how many processes, of one thread each")
    parser.add_argument("--wide", type=int, default=1, help="how many times 64 the networks are wide")
    parser.add_argument("--sketch", action="store_true", help="with a sketch of each tensor")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 alone, and faults of 2 %%")
    parser.add_argument("--final", action="store_true", help="the networks and seeds that are held out")
    parser.add_argument("--within", type=float, help="seconds after which no more pairs are made")
    parser.add_argument("--keep", type=Path, help="where the dumps stay, to be compared again")
    given, begin, found = parser.parse_args(), time.monotonic(), []
    for name in NETWORKS:
        if why := missing(name):
            print(f"skipped: {name}: {why}", flush=True)
    pairs = drawn(
        given.faulty,
        given.honest,
        given.seed,
        final=given.final,
        wide=given.wide,
        sketch=given.sketch,
        bf16=given.bf16,
    )
    with tempfile.TemporaryDirectory(prefix="probe-cause-") as temporary:
        top = given.keep or Path(temporary)
        kept = given.keep is not None
        tasks = [(pair, top / f"{given.seed}-{n}", kept) for n, pair in enumerate(pairs)]
        random.Random(given.seed).shuffle(tasks)  # so that those made in time are like the others
        for each in _all_of(tasks, given.jobs, given.within):
            found.append(each)
            if each.said:
                print(each.said, flush=True)
    if len(found) < len(tasks):
        print(f"\n{len(tasks) - len(found)} of {len(tasks)} pairs were not made in time")
    _print([(each.pair, each.grade) for each in found if each.grade != "failed"])
    mean, most = sum(x.seconds for x in found) / len(found), max(x.memory for x in found) / 1024
    print(
        f"{mean:.2f} s CPU for each comparison, {time.monotonic() - begin:.0f} s for all, with {given.jobs} processes"
    )
    print(
        f"at most {most:.0f} MB in one of them; failed to be made: {sum(x.grade == 'failed' for x in found)}"
    )


def _all_of(tasks: list[tuple[Pair, Path, bool]], jobs: int, within: float | None) -> Iterator[Outcome]:
    """Make and compare all pairs, in as many processes: yield them as they end, those that end in time."""
    if jobs == 1:
        yield from (outcome_of(*task) for task in tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        pairs = {pool.submit(outcome_of, *task): task[0] for task in tasks}
        with contextlib.suppress(TimeoutError):
            for each in as_completed(pairs, within):
                try:
                    yield each.result()
                except BrokenProcessPool as error:
                    yield Outcome(pairs[each], "failed", f"failed: {pairs[each]}: {error}")
        pool.shutdown(cancel_futures=True)


def _print(found: list[tuple[Pair, str]]) -> None:
    print("\n| fault | on top | named | around it | missed | silent | of |\n|---|---|---|---|---|---|---|")
    kinds = [kind for kind in FAULTS if any(pair.kind == kind for pair, _ in found)]
    for kind in [*kinds, "all"]:
        for on_top in (False, True):
            mine = [
                (p, g)
                for p, g in found
                if p.kind and kind in (p.kind, "all") and p.honest.startswith("none") != on_top
            ]
            count = Counter(grade for _, grade in mine)
            cells = [kind, "yes" if on_top else "no", *(count[g] for g in GRADES), len(mine)]
            print(f"| {' | '.join(map(str, cells))} |")
    print("\n| honest difference | named, or around it | of | called different | of |\n|---|---|---|---|---|")
    for setting in dict.fromkeys(sorted(pair.honest for pair, _ in found)):
        faulty, honest = (
            [g for p, g in found if p.honest == setting and bool(p.kind) == x] for x in (True, False)
        )
        named = faulty.count("named") + faulty.count("around it")
        print(f"| {setting} | {named} | {len(faulty)} | {honest.count('alarm')} | {len(honest)} |")
    faulty, honest = ([g for p, g in found if bool(p.kind) == wrong] for wrong in (True, False))
    alarms = honest.count("alarm")
    named = faulty.count("named") + faulty.count("around it")
    called = len(faulty) - faulty.count("silent") + alarms
    print(f"\nrecall {named} of {len(faulty)}, precision {named} of {called}", end=", ")
    print(f"honest pairs called different {alarms} of {len(honest)}")


if __name__ == "__main__":
    main()
