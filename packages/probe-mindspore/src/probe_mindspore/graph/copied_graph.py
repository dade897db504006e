"""Read what a compiled graph computes, by evaluating a copy of it beside each of its runs.

The values for which the copy has taps are recorded. Where the copy computes all that the run does, what both
return and write is compared, to the bit.
"""

import _thread
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from types import MappingProxyType
from typing import Any

from attrs import define, field
from probe_format.excerpts import unsignalled

from probe_mindspore.patching.compile_hook import API
from probe_mindspore.tensors.tensor_view import TensorView, view_of, views_of

from .host_callback import deliver
from .replay_plan import PlannedMessage, ReplayPlan, Source, replay_plan
from .replay_process import PATIENCE, Evaluated, Evaluation, ReplayError, replay_process
from .routes import route
from .search import SearchResult

_DRAWS = 16  # how often a graph with random kernels is evaluated again, to find the numbers that the run drew
_DRAWING = 10.0  # seconds after which no more of these evaluations begin
_numbers = itertools.count()
_NOTHING: Mapping[str, TensorView] = MappingProxyType({})


@define
class Outcome:
    """Count how the runs of a graph compare with its copies.

    runs: how often the graph ran.
    equal: how often all that the graph returned and wrote was equal to its copy's, to the bit.
    differs: "outputs", and the names of Parameters, that had other bits in the copy.
    shares: the ids of Cells with gradients of which the run computes the terms, and not the sum.
    copied: the ids of Cells with values that the run does not compute: they were computed from the run's values.
    """

    runs: int = 0
    equal: int = 0
    differs: dict[str, None] = field(factory=dict)
    shares: dict[int, None] = field(factory=dict)
    copied: dict[int, None] = field(factory=dict)

    def json(self, names: Mapping[int, str]) -> dict[str, Any]:
        """Return the entry of the report. names: id of a Cell -> its name."""
        told = {"shares": self.shares, "copied": self.copied}
        cells = {key: [names[one] for one in found if one in names] for key, found in told.items()}
        return {"runs": self.runs, "equal": self.equal, "differs": list(self.differs), **cells}


@define(eq=False)
class CopiedGraph:
    """Evaluate a compiled graph beside its runs, and send what its taps would have sent.

    name: the name of the Cell or function that was compiled.
    executor: MindSpore's object that holds both graphs.
    run, tapped: the keys of the user's graph, and of the graph with taps, which never runs. The latter is dropped
        once there is a plan; its key is "" then.
    found: what the search for taps found.
    seconds: how long compiling the graph with taps took.
    wanted: the names of the taps (`Route`) whose values are recorded.
    failed: why no copy is evaluated any more.
    """

    name: str
    executor: Any
    run: str
    tapped: str
    found: SearchResult
    seconds: float
    wanted: frozenset[str]
    failed: Exception | None = None
    number: int = field(factory=_numbers.__next__)
    _plan: ReplayPlan | None = None
    _more: dict[str, Any] = field(factory=dict)

    def planned(self) -> ReplayPlan:
        """Return the plan, which is made with the first run. Raises the error (`failed`) where there is no copy."""
        if self.failed is not None:
            raise self.failed
        if self._plan is None:
            try:
                self._plan = self._made()
            except unsignalled(Exception) as e:
                self.failed = e.with_traceback(None)  # whose frames hold tensors
                raise
        return self._plan

    def _made(self) -> ReplayPlan:
        plan = replay_plan(self._exported(self.run), lambda: self._exported(self.tapped), self._sites())
        ours, theirs = self.executor.get_params(self.tapped), self.executor.get_params(self.run)
        self._more = {name: ours[name] for name in plan.parameters if name not in theirs}
        return plan

    def drop_tapped(self) -> None:
        """Drop the graph with taps, which takes MindSpore 30 MB and more, once the plan has been made from it.

        This never comes before the first run, in which MindSpore differentiates a jitted piece: dropping another
        graph of the same function between the piece's compilation and that run changed the gradients of a piece that
        writes to tensors in place. Nor does it come while a graph runs: MindSpore would wait for that graph, holding
        the lock that host functions in the graph wait for.

        Raises what the run's own kernels have raised by then.
        """
        if self._plan is not None and self.tapped:
            API._pynative_executor.sync()
            tapped, self.tapped = self.tapped, ""
            self.executor.del_net_res(None, {tapped})

    def _sites(self) -> set[int]:
        return {site for site, name in route().names.items() if name in self.wanted}

    def _exported(self, key: str) -> bytes:
        return bytes(self.executor.get_func_graph_proto(key, "mind_ir", False))

    def begin(self, inputs: Sequence[Any], before: Mapping[str, TensorView] = _NOTHING) -> Any:
        """Begin to evaluate the copy on the inputs that a run is about to get. Return what `end` takes.

        before: name -> the earlier value of each Parameter that has been written since.
        """
        plan = self.planned()
        own = {**self._more, **self.executor.get_params(self.run), **before}
        own = {name: own[name] for name in plan.parameters}
        given: dict[str, Any] = {"arguments": inputs, "parameters": own, "written": plan.written}
        given["sites"] = None if plan.is_straight else self._sites()
        return own, replay_process.begin(self.number, plan.model, given)

    def end(self, begun: Any, out: Any, outcome: Outcome) -> list[int]:
        """Compare the copy with the run, and send the messages. Return the answers to those that begin calls.

        begun: what `begin` returned.
        out: what the run returned.

        Raises ReplayError where the copy could not be evaluated.
        """
        plan, (own, one), real = self.planned(), begun, views_of(out)
        found = self._result(one)
        draws = _DRAWS if plan.random and plan.whole else 0
        end = time.monotonic() + _DRAWING
        while draws and time.monotonic() < end and not _equal(found.outputs, real):
            draws -= 1
            found = self._result(replay_process.again(one))
        replay_process.forget(one)
        after = {name: view_of(own[name]) for name in plan.written}
        self._compare(found.outputs, real, found.written, after, outcome)
        return self._send(found, one.kept, outcome)

    def gradients(self, inputs: Sequence[Any], before: Any, tokens: Sequence[int], outcome: Outcome) -> None:
        """Evaluate the copy, and send its messages of gradients, where the calls have been recorded already.

        tokens: the answers to the messages that began these calls.
        """
        _, one = self.begin(inputs, before)
        self._send(self._result(one), one.kept, outcome, tokens)
        replay_process.forget(one)

    def _result(self, one: Evaluation) -> Evaluated:
        try:
            return replay_process.end(one, PATIENCE + 4 * self.seconds)
        except ReplayError as e:
            self.failed = e.with_traceback(None)  # whose frames hold tensors
            raise

    def _send(
        self, found: Evaluated, kept: Any, outcome: Outcome, tokens: Sequence[int] | None = None
    ) -> list[int]:
        """Send the messages of a run, in the order of the program. Return the answers to those that begin calls.

        tokens: these answers, if the calls have been recorded already.
        """
        answers: list[int] = []
        begun: list[int] = []
        names = route().names

        def send(one: PlannedMessage) -> None:
            token = 0 if one.token is None else answers[one.token]
            what = names.get(one.site)
            if what is None:  # a save() of the user's, which the run itself does
                answer = 0
            elif tokens is not None and what in ("enter", "leave", "parameter"):
                answer = tokens[len(begun)] if what == "enter" and len(begun) < len(tokens) else 0
            else:
                for told in _told(one.values, tokens is not None, outcome):
                    told[one.extra] = None
                arrays = [_elements(source, found, kept) for source in one.values]
                answer = deliver(one.site, one.layout, one.extra, one.place, token, arrays)
            answers.append(answer)
            if what == "enter":
                begun.append(answer)

        messages = self.planned().messages or [PlannedMessage(*one) for one in found.messages]
        _without_frames(lambda: deque(map(send, messages), 0))
        return begun

    def _compare(self, copy: Any, real: Any, wrote: Any, after: Any, outcome: Outcome) -> None:
        whole = self.planned().whole
        outcome.runs += 1
        differs = [] if not whole or _equal(copy, real) else ["outputs"]
        differs += [name for name, view in after.items() if whole and not _equal([wrote[name]], [view])]
        outcome.equal += not differs and whole
        outcome.differs |= dict.fromkeys(differs)


def _elements(source: Any, found: Evaluated, kept: Any) -> Any:
    """Return the elements of a value of a message. source: an entry of `PlannedMessage.values`."""
    if not isinstance(source, Source):  # not to be had, or what the copy has sent itself
        return source
    if source.constant is not None:
        return source.constant
    if source.output is not None:
        return found.further[source.output].data
    if source.argument is not None:
        return kept["arguments"][source.argument].data
    return kept["parameters"][source.parameter].data


def _told(values: Sequence[Any], all_copied: bool, outcome: Outcome) -> Iterator[dict[int, None]]:
    """Yield the fields of the outcome in which the Cell of a message with these values is to be noted."""
    ways = {source.how for source in values if isinstance(source, Source)}
    if "copy" in ways or (all_copied and any(source is not None for source in values)):
        yield outcome.copied
    if "shares" in ways and not all_copied:
        yield outcome.shares


def _without_frames(work: Callable[[], Any]) -> None:
    """Run ``work`` with none of the user's code on the stack: no line of theirs made the calls of a graph."""
    done, failed = threading.Lock(), list[BaseException]()
    done.acquire()

    def run() -> None:
        try:
            work()
        except BaseException as e:
            failed.append(e)
        finally:
            done.release()

    _thread.start_new_thread(copy_context().run, (run,))  # with the label of the call
    done.acquire()
    if failed:
        raise failed[0]


def _equal(one: Sequence[TensorView], other: Sequence[TensorView]) -> bool:
    if len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    return all(
        a.dtype == b.dtype
        and a.data is not None
        and b.data is not None
        and a.data.tobytes() == b.data.tobytes()
        for a, b in pairs
    )
