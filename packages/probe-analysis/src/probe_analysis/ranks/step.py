"""Compare the ranks of one step."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from attrs import define, evolve
from probe_format.names import CLIP_GRAD, OPTIMIZER

from probe_analysis.calls.run import GRADIENTS, Call, Progress
from probe_analysis.compare.distance import distance

from .compact_run import CompactRun
from .disagreement import Disagreement, Local, odd_of, parted, ranks_text, unreduced
from .expected import Expected, expected_of, global_form, in_update, may_agree
from .replicas import History, Replicas, note_inputs, same_updates
from .rows import Joint, Missing, collective, is_collective, results_of, rounds, rows_of, stop_of


def compare_step(
    label: str,
    runs: Mapping[int, CompactRun],
    replicas: Replicas,
    history: History,
    asked: Sequence[str],
    tolerance: float,
    progress: Progress | None,
) -> list[Disagreement]:
    """Return where the ranks of a step disagree, in the order of execution. runs: rank -> its run."""
    rows, alone = rows_of(runs)
    cut = tuple(rank for rank, run in runs.items() if run.was_cut)
    if cut:
        why = "did not end the step (killed, failed, or still running): calls after that are not compared."
        history.note("cut", label, f"{ranks_text(cut)} {why}".capitalize())
        history.stopped = history.stopped or stop_of(label, rows, runs)
    lost = [f"rank {rank}, {run.lost}" for rank, run in runs.items() if run.lost]
    if lost:
        history.note("lost", label, f"{'; '.join(lost)}. What is lost is not compared.")
    at = _Step(label, runs, replicas, history, tolerance, {rank: Local(run) for rank, run in runs.items()})
    found = [*at.missing(alone), *at.collectives()]
    updates = same_updates(runs, replicas, history, label)
    for n, row in enumerate(rows):
        if len(row) > 1:
            found += at.row(row, updates, asked)
        if progress is not None and n % 256 == 255:
            progress(label, n + 1, len(rows))
    if history.weights and replicas.groups and replicas.groups[0] == tuple(runs):
        note_inputs(label, rows, runs, history)
    return sorted(found, key=lambda d: (d.call.order, d.reason != "call"))


@define(eq=False)
class _Step:
    """Compare one step. local: rank -> the gradients that its own backward pass left."""

    label: str
    runs: Mapping[int, CompactRun]
    replicas: Replicas
    history: History
    tolerance: float
    local: Mapping[int, Local]

    def row(self, row: Joint, updates: bool, asked: Sequence[str]) -> Iterator[Disagreement]:
        call = next(iter(row.values()))
        if collective(call):
            return  # paired by their groups instead
        forms = {self.runs[rank].form(each) for rank, each in row.items()}
        if not asked and not may_agree(call, forms):
            return
        parts = {rank: self.runs[rank].read(each) for rank, each in row.items()}
        taken: set[tuple[int, ...]] = set()
        known = {"updates": updates, "weights": self.history.weights}
        for expected in expected_of(call, parts, self.replicas.groups, **known, asked=asked):
            if expected.reason == "asked":
                self.history.asked.update(p for p in asked if fnmatchcase(f"{call.name}.{expected.slot}", p))
            ranks = tuple(expected.tensors)
            follows = expected.slot.startswith("output") and expected.reason in ("update", "placement")
            if follows and ranks in taken:
                continue  # what it returns differs because what it got does
            found = self._compare(call, expected)
            if found is not None:
                taken.add(ranks)
                yield found

    def collectives(self) -> Iterator[Disagreement]:
        """Yield the collective calls that a rank does not make, and results that ranks do not share."""
        together, missing = rounds(self.runs)
        for each in sorted(missing, key=lambda m: -len(m.present)):
            absent = tuple(rank for rank in each.absent if not self._was_cut_before(rank, each))
            if absent:
                yield self._absent(evolve(each, absent=absent))
        for joint in together:
            for slot, values in results_of(joint, self.runs):
                if len(values) > 1:
                    expected = Expected("collective", slot, {rank: v.tensor for rank, v in values.items()})
                    found = self._compare(next(iter(joint.values())), expected)
                    if found is not None:
                        yield found

    def _was_cut_before(self, rank: int, each: Missing) -> bool:
        """Return whether a rank did not get to a call that others make, because it was cut."""
        run, there = self.runs[rank], self._maker(each.call, each.present).by_name
        ended = (c for c in reversed(run.calls) if c.kind == "api" or not run.ended_inside(c))
        met = (there[c.name].order for c in ended if c.name in there)
        return run.was_cut and next(met, -1) < each.call.order

    def missing(self, alone: Sequence[Missing]) -> Iterator[Disagreement]:
        """Yield the calls of modules that only some of the replicas make; note other calls."""
        others: list[Missing] = []
        for each in alone:
            call = each.call
            if call.kind == "api" and not in_update(call):
                if not is_collective(collective(call) or ""):
                    others.append(each)
                continue
            for group in self.replicas.groups:
                absent = tuple(rank for rank in group if rank in each.absent)
                present = tuple(rank for rank in group if rank in each.present)
                if absent and present and call.kind != "debug":
                    yield self._absent(Missing(call, tuple(group), present, absent))
                    break
        if others:
            first = others[0]
            text = f"{len(others)} function calls are made by some ranks alone, as {first.call.name} by "
            self.history.note("alone", self.label, f"{text}{ranks_text(first.present)}.")

    def _absent(self, each: Missing) -> Disagreement:
        call, absent, present = each.call, each.absent, each.present
        if call.backward or call.kind in GRADIENTS:
            have = "has" if len(absent) == 1 else "have"
            what = f"{ranks_text(absent)} {have} no {call.name}, which {ranks_text(present)} made"
            then = "A reduction of its gradients waits for ever, or takes in zeros."
        else:
            # A collective is told from others of its name by the first tensor that it takes.
            took = self._maker(call, present).read(call).values if collective(call) else ()
            form = f" ({took[0].tensor['dtype']} {took[0].tensor['shape']})" if took else ""
            group = ", ".join(map(str, each.group))
            what = f"{call.name}{form} is called on {ranks_text(present)}, of the group {group}, and has no "
            what += f"counterpart on {ranks_text(absent)}"
            then = "The others wait for it, or pair with another call: the run can hang."
        what = what[0].upper() + what[1:]
        parting = tuple(sorted((present, absent), key=lambda ranks: -len(ranks)))
        odd = odd_of(parting) or absent
        found = self._made(call, present)
        return Disagreement(self.label, found, "", "call", parting, odd, what, f"{what}. {then}")

    def _compare(self, call: Call, expected: Expected) -> Disagreement | None:
        reason, slot, tensors = expected.reason, expected.slot, expected.tensors
        key = call.name, slot
        limit = max(self.tolerance, expected.tolerance)
        parting = parted(tensors, key=global_form) if reason == "form" else parted(tensors, limit)
        agrees = len(parting) < 2
        if sum(map(len, parting)) < 2:
            return None  # at most one rank has its numbers
        if not agrees and reason == "weight" and not self.history.weights and key not in self.history.agreed:
            return None  # never agreed, and only the function says that it is a weight
        self.history.checked[reason] += 1
        if agrees:
            if reason == "weight":
                self.history.agreed[key] = self.label
            return None
        odd = odd_of(parting)
        most, other = parting[0], parting[-1]
        said = distance(tensors[other[0]], tensors[most[0]]).what
        words = detail = f"{slot} on {ranks_text(other)} against {ranks_text(most)}: {said}"
        if reason == "update":
            lonely, more = unreduced({r: (self.local[r], tensor) for r, tensor in tensors.items()})
            odd = odd or lonely
            if more:
                words += f". {more}"
        elif reason == "weight":
            words += f". {self._since(key)}"
        says = _SAYS[reason].format(where=_PLACES.get(call.parent or "", ""))
        sentence = f"{call.name} {says}: {words}".rstrip(".") + "."
        made = self._made(call, tensors)
        return Disagreement(self.label, made, slot, reason, parting, odd, detail, sentence)

    def _made(self, call: Call, ranks: Iterable[int]) -> Call:
        """Return a call as that of the first of these ranks that makes it."""
        return evolve(call, rank=self._maker(call, ranks).rank)

    def _maker(self, call: Call, ranks: Iterable[int]) -> CompactRun:
        """Return the first run that makes a call; one of these ranks where one does."""
        return next(run for rank in (*ranks, *self.runs) if (run := self.runs[rank]).makes(call))

    def _since(self, key: tuple[str, str]) -> str:
        before = self.history.agreed.get(key)
        if before is None:
            return "They differ from the first record on: look at how each rank initialises, loads or broadcasts them"
        return (
            f"In {before} they agreed: look at the reduction of the gradients, the optimizer's step, and whatever "
            "else writes weights between"
        )


_SAYS = {
    "weight": "has other weights on some replicas",
    "update": "{where}gets other numbers on some replicas",
    "collective": "gives the ranks of its group other results",
    "placement": "has a DTensor that differs between ranks that hold the same part",
    "form": "has a DTensor that the ranks describe in different ways",
    "computed": "returns something else for the same arguments",
    "asked": "differs between ranks",
}


_PLACES = {OPTIMIZER: "in the optimizer's step ", CLIP_GRAD: "in the clipping of the gradients "}
