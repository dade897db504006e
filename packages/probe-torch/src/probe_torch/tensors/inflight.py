"""Track the memory that unfinished collectives write, and describe it once the run has waited for them.

Probe never waits itself and reads nothing that is incomplete, so it watches the run's own waits. A functional
collective is complete after `wait_tensor`, which the first use of its `AsyncCollectiveTensor` calls; one of
torch.distributed after `Work.wait`.
"""

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from attrs import define, field
from probe_runtime.collect import PendingWork, faults_reported
from probe_runtime.patching import Function, Held, Place, listening, place

from probe_torch.aside import aside

from .tensor_view import NO_DISPATCH

_T: Any = torch._C.TensorBase
_MOST = 1024
#: The methods of a process group that write into their first argument.
_WRITING = (
    *("allreduce", "allreduce_coalesced", "broadcast", "reduce", "recv", "recv_anysource"),
    *("allgather", "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced"),
    *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced"),
    *("alltoall", "alltoall_base", "gather", "gather_single", "scatter"),
    *("all_gather_single", "all_gather_single_coalesced", "all_to_all_single"),
    *("reduce_scatter_single", "reduce_scatter_single_coalesced"),
)
_FUNCTIONAL = ("_c10d_functional", "c10d_functional")

Finish = Callable[[bool], None]


@define(eq=False)
class InFlight:
    """Track the memory that collectives are writing. Safe to use from many threads.

    open: address where memory begins that a functional collective writes -> its storage.
    waited: the same, for collectives that have been waited for.
    works: address where memory begins that a collective of torch.distributed writes -> (its storage, its handle).
    waiting: address -> what to call once that memory has been waited for.
    """

    open: dict[int, weakref.ref[Any]] = field(factory=dict)
    waited: dict[int, weakref.ref[Any]] = field(factory=dict)
    works: dict[int, tuple[weakref.ref[Any], Any]] = field(factory=dict)
    waiting: dict[int, list[Finish]] = field(factory=dict)
    _lock: threading.RLock = field(factory=threading.RLock)

    def issued(self, t: torch.Tensor) -> None:
        if where := _memory(t):
            with self._lock:
                self.open[where] = weakref.ref(_T.untyped_storage(t))
                self.waited.pop(where, None)

    def was_waited(self, t: torch.Tensor) -> None:
        """Note that `wait_tensor` of ``t`` has returned, and finish what waited for it."""
        where = _memory(t)
        if not where:
            return
        with self._lock:
            self.open.pop(where, None)
            self.waited[where] = weakref.ref(_T.untyped_storage(t))
            waiting = self.waiting.pop(where, [])
            if len(self.waited) > _MOST:
                self.waited = {at: held for at, held in self.waited.items() if held() is not None}
        for finish in waiting:
            finish(True)

    def started(self, t: torch.Tensor, work: Any) -> None:
        """Note that a collective of torch.distributed writes ``t`` until ``work`` is done."""
        if where := _memory(t):
            with self._lock:
                self.works[where] = weakref.ref(_T.untyped_storage(t)), work

    def finished(self, work: Any) -> None:
        if self.works:
            with self._lock:
                self.works = {where: held for where, held in self.works.items() if held[1] is not work}

    def is_open(self, t: torch.Tensor, *, asynchronous: bool) -> bool:
        """Return whether a functional collective writes ``t``.

        asynchronous: whether ``t`` is the result of a functional collective, and has not been used yet.
        """
        if not asynchronous and not self.open:
            return False
        where = _memory(t)
        if not where:
            return False
        storage = _T.untyped_storage(t)
        held = self.open.get(where)
        if held is not None:
            if held() is storage:
                return True
            self.open.pop(where, None)  # never waited for, and the memory belongs to another storage now
        done = self.waited.get(where)
        return asynchronous and (done is None or done() is not storage)

    def is_written(self, t: torch.Tensor) -> bool:
        """Return whether a collective of torch.distributed writes ``t``."""
        held = self.works.get(where) if self.works and (where := _memory(t)) else None
        if held is None:
            return False
        storage, work = held
        with contextlib.suppress(Exception):
            return storage() is _T.untyped_storage(t) and not work.is_completed()
        return True

    def then(self, tensors: Sequence[torch.Tensor], finish: Finish) -> None:
        """Call ``finish(True)`` when the memory of all has been waited for, else ``finish(False)``, once."""
        left = len(tensors)

        def one(waited: bool) -> None:
            nonlocal left
            left = left - 1 if waited or left < 1 else 0
            if left == 0:
                left = -1
                finish(waited)

        with self._lock:
            for where in map(_memory, tensors):
                assert where is not None
                self.waiting.setdefault(where, []).append(one)

    def give_up(self) -> None:
        """Finish what was never waited for, as the step ends."""
        with self._lock:
            waiting, self.waiting, self.works = self.waiting, {}, {}
        for each in waiting.values():
            for finish in each:
                finish(False)


def watched_collectives(
    inflight: InFlight, operators: Sequence[Place], works: PendingWork | None = None
) -> Held:
    """Report collectives, and the waits for them, until the result is undone; their results stay the same.

    inflight: told of the memory that collectives write.
    operators: the places by which Python code calls torch's operators, some of which are collectives; what stands in
        for each calls `operator_called`.
    works: told which handles of collectives were waited for.
    """
    places = [*operators]
    if dist.is_available():
        writing = [name for name in _WRITING if hasattr(dist.ProcessGroup, name)]
        places += [place(dist.ProcessGroup, name, _collective) for name in writing]
        places.append(place(dist.Work, "wait", _wait))
    return listening(_watching, (inflight, works), places)


_watching: list[tuple[InFlight, PendingWork | None]] = []


def operator_called(op: Any, out: Any) -> None:
    """Report what a functional collective, or `wait_tensor`, has returned; do nothing for any other operator."""
    name = getattr(op, "_name", None) or op._qualified_op_name
    if _watching and name.startswith(_FUNCTIONAL):
        with faults_reported("a collective", "the memory that it writes"), aside():
            for inflight, _ in _watching:
                report = inflight.was_waited if "::wait_tensor" in name else inflight.issued
                for tensor in _tensors_in(out):
                    report(tensor)


def _collective(original: Function) -> Function:
    @functools.wraps(original)
    def call(group: Any, /, *args: Any, **kwargs: Any) -> Any:
        work = original(group, *args, **kwargs)
        if _watching and isinstance(work, dist.Work):
            with faults_reported("a collective", "the memory that it writes"), aside():
                for tensor in _tensors_in(args[:1] or next(iter(kwargs.values()), ())):
                    for inflight, _ in _watching:
                        inflight.started(tensor, work)
        return work

    return call


def _wait(original: Function) -> Function:
    @functools.wraps(original)
    def wait(work: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(work, *args, **kwargs)
        for inflight, works in tuple(_watching):
            with faults_reported("a collective", "the end of its wait"):
                inflight.finished(work)
                if works is not None:
                    works.waited(work)
        return result

    return wait


def _memory(t: torch.Tensor) -> int | None:
    """Return the address where the memory begins that ``t`` and its views share; None if it has no memory."""
    if type(t).__torch_dispatch__ is not NO_DISPATCH:
        return None  # a fake tensor would warn
    with contextlib.suppress(RuntimeError):
        return int(_T.data_ptr(t)) - int(_T.storage_offset(t)) * int(_T.element_size(t))
    return None


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if issubclass(type(value), torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_in(item)
    elif isinstance(value, dict):
        yield from _tensors_in(list(value.values()))
