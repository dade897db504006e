"""Run one recorded call again in float64, forward and backward, and measure how far off its recorded results are."""

import math
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field, frozen
from probe_format.errors import FormatError, ProbeError
from probe_format.names import ApiName
from probe_format.read import Record, Tensor
from probe_format.schema import others, path_text, why_lost
from probe_format.values import ValuePath

from probe_analysis.calls.run import AtCall, Call
from probe_analysis.compare.dtypes import dtype_name, eps_of

from .arguments import Arguments, arguments_of, values_of, wide
from .error import Error, error_of
from .replayer import Array, Arrays, Replayer

#: How many float64 copies of its tensors a call is taken to need.
_COPIES = 8
MEMORY = 8 << 30
"""Bytes that one call may need, where nobody says."""


@frozen(eq=False)
class Replayed(AtCall):
    """Hold what the replay of one pass of a call found.

    call: its forward or backward record.
    slot, dtype, error: of the result that is the farthest off; None where none was compared.
    limit: the units up to which it is right.
    why: the reason where it was not replayed; empty where it was.
    """

    call: Call
    slot: str = ""
    dtype: str = ""
    error: Error | None = None
    limit: float = math.inf
    why: str = ""

    @property
    def units(self) -> float:
        """Return the error, in units of what rounding explains; 0 where it was not replayed."""
        return 0.0 if self.error is None else max(self.error.units, self.error.worst / _ELEMENT)

    @property
    def wrong(self) -> bool:
        return self.units > self.limit

    @property
    def sentence(self) -> str:
        """Return in words how far it is from the exact result, or why that is not known."""
        if self.error is None:
            return f"{self.call.name} cannot be replayed: {self.why}."
        kind, many = dtype_name(self.dtype), f"{self.units:.3g} times"
        off = f"{self.slot} is {percent(self.error.relative)} from the exact result, {many} what {kind} explains"
        return f"{self.call.name} is wrong: {off}." if self.wrong else f"{self.call.name} is right: {off}."


#: A single element may be off by so many times more units than the result as a whole.
_ELEMENT = 8.0


def _limit_of(unit: float, sizes: Sequence[int], made: int) -> float:
    """Return the units up to which a result is right.

    Sums one after the other are off by up to the square root of their terms more than rounding of the inputs explains.
    Products of low-precision numbers are summed in float32, but some kernels add up gradients in the dtype itself.

    unit: the roundoff of the coarsest dtype. sizes: how many elements each input has. made: how many the result has.
    """
    first, second = sorted((*sizes, 1, 1))[:-3:-1]
    if unit > 1e-5:
        return 4.0 + 0.5 * math.sqrt(first / made)
    return 16.0 + 2.0 * math.sqrt(max(first / made, math.sqrt(first * second / made)))


def percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def replay(call: Call, replayer: Replayer, backward: Call | None, memory: int = MEMORY) -> Iterator[Replayed]:
    """Yield what the replay of a forward call found, and of its backward record where it has one.

    memory: bytes that it may need.
    Raises FormatError when the file of a tensor would be outside the dump, or a record cannot be read.
    """
    both = [call] if backward is None else [call, backward]
    found: list[Replayed] = []
    why = ""
    try:
        with _limited(memory):  # not while the caller goes on
            found.extend(_replayed(call, replayer, backward, memory))
    except FormatError:
        raise
    except ProbeError as error:
        why = str(error)
    except Exception as error:  # whatever a function raises at such arguments
        why = f"it raises {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    yield from found
    if why:
        yield from (Replayed(each, why=why) for each in both[len(found) :])


def _replayed(call: Call, replayer: Replayer, backward: Call | None, memory: int) -> Iterator[Replayed]:
    forward = call.record
    records = [forward] if backward is None else [forward, backward.record]
    name = forward.parsed
    assert isinstance(name, ApiName)
    function = replayer.function(name.prefix, name.api)
    results = _results_of(forward)
    tensors = [tensor for record in records for tensor in record.tensors]
    needed = sum(math.prod(tensor.shape) for tensor in tensors) * 8 * _COPIES
    if needed > memory:
        raise ProbeError(f"it needs too much memory (--memory): about {math.ceil(needed / 2**30)} GiB")
    unit = max((eps_of(tensor.dtype) for tensor in tensors), default=0.0) / 2
    run = _Rerun(function, arguments_of(forward, replayer), replayer)
    why = ""
    if backward is not None:
        try:
            run.take(backward.record)
        except FormatError:
            raise
        except ProbeError as error:
            why = str(error)
    exact, moved = run.moved_by(0.0), run.moved_by(unit)
    sizes = [x.size for x in run.arguments.arrays]
    yield _farthest(call, ((t, _at(exact[0], t), _at(moved[0], t)) for t in results), unit, sizes)
    if backward is not None and why:
        yield Replayed(backward, why=why)
    elif backward is not None and run.made:
        parts = ((t, run.summed(exact[1], t), run.summed(moved[1], t)) for t in run.made)
        yield _farthest(backward, parts, unit, [*sizes, *(x.size for x in run.given.values())])


def _results_of(forward: Record) -> list[Tensor]:
    """Return the results that can be compared. Raises ProbeError with the reason where there are none."""
    for key, what in (("raised", "it ended in an exception"), ("incomplete", "the process ended inside it")):
        if forward.json.get(key):
            raise ProbeError(what)
    results = [tensor for tensor in forward.tensors if tensor.keys[0] == "output" and eps_of(tensor.dtype)]
    if not results:
        raise ProbeError("it returns no floating-point tensor")
    return results


@define
class _Rerun:
    """Run a call again and again, each time with inputs that are moved a little.

    made: the gradients that the call's backward record has as results. given: the gradients that it got.
    wanted: the indexes of the inputs whose gradients ``made`` has.
    """

    function: Callable[..., Any]
    arguments: Arguments
    replayer: Replayer
    made: Sequence[Tensor] = ()
    given: Arrays = field(factory=dict)
    wanted: Sequence[int] = ()

    def take(self, record: Record) -> None:
        """Take from a backward record the gradients that it got and made. Raises ProbeError where one is unusable."""
        if record.json.get("partial"):
            raise ProbeError("a sum of gradients is not whole (partial)")
        if any(leaf is not None and why_lost(leaf) for _, leaf in others(record.json.get("input", []))):
            raise ProbeError("a gradient that it got is lost")
        got = [tensor for tensor in record.tensors if tensor.keys[0] == "input"]
        made = [tensor for tensor in record.tensors if tensor.keys[0] == "output" and eps_of(tensor.dtype)]
        if made and not got:
            raise ProbeError("the gradients that it got are not recorded")
        slots = self._slots
        indexes = {slots.get(slot) for tensor in made for slot in _with_shared(tensor)}
        if None in indexes:
            raise ProbeError("it has a gradient of what is no tensor among its inputs")
        given = {("output", *tensor.keys[1:]): wide(values_of(tensor)) for tensor in got}
        self.made, self.given, self.wanted = made, given, sorted(n for n in indexes if n is not None)

    @property
    def _slots(self) -> dict[str, int]:
        """Return the slot of each tensor's gradient in a backward record -> the tensor's index."""
        names = list(self.arguments.kwargs)
        found = {}
        for n, (part, first, *rest) in enumerate(self.arguments.paths):
            slot = first if part == "input_args" else len(self.arguments.args) + names.index(str(first))
            found[path_text(("output", slot, *rest))] = n
        return found

    def moved_by(self, share: float) -> tuple[Arrays, Mapping[str, Array]]:
        """Return the results, and slot -> gradient. share: how far each input is moved, as a part of its own size."""
        noise = np.random.default_rng(0)

        def moved(x: Array) -> Array:
            if not share or x.dtype.kind not in "fc":
                return x.copy()
            signs = 2.0 * noise.integers(0, 2, x.shape, np.int8) - 1.0
            return np.asarray(x * (1.0 + share * signs))

        inputs = [moved(x) for x in self.arguments.arrays]
        given = {path: moved(x) for path, x in self.given.items()}
        results, gradients = self.replayer.run(self._body, inputs, self.wanted, given)
        found = dict(zip(self.wanted, gradients, strict=True))
        none = {n: np.zeros(inputs[n].shape) if x is None else x for n, x in found.items()}
        return results, {slot: none[n] for slot, n in self._slots.items() if n in none}

    def _body(self, tensors: Sequence[Any]) -> dict[ValuePath, Any]:
        args, kwargs = self.arguments.filled(tensors)
        return dict(_flat(self.function(*args, **kwargs)))

    def summed(self, gradients: Mapping[str, Array], tensor: Tensor) -> Array:
        """Return the gradient in the slot of a tensor; where several slots share one sum, the sum of theirs."""
        found: Array = np.sum([gradients[slot] for slot in _with_shared(tensor)], axis=0)
        return found


def _with_shared(tensor: Tensor) -> tuple[str, ...]:
    return (tensor.slot, *tensor.shared_with)


def _flat(result: Any) -> Iterator[tuple[ValuePath, Any]]:
    """Yield what a function returned, by the places that records have for it (spec/dump.md)."""
    values = result if isinstance(result, tuple | list) else [result]
    todo: list[tuple[ValuePath, Any]] = [(("output",), values)]
    for path, value in todo:  # which grows
        if isinstance(value, tuple | list):
            todo += [((*path, n), x) for n, x in enumerate(value)]
        else:
            yield path, value


def _at(results: Arrays, tensor: Tensor) -> Array:
    found = results.get(tensor.keys)
    if found is None:
        raise ProbeError(f"it returns something else here: {tensor.slot} is no tensor")
    return found


def _farthest(
    call: Call, parts: Iterable[tuple[Tensor, Array, Array]], unit: float, sizes: Sequence[int]
) -> Replayed:
    """Return the finding on a pass: that of its result that is the farthest off.

    parts: each recorded result, the exact one, and the result of moved inputs.
    """
    found = []
    for tensor, exact, moved in parts:
        recorded = values_of(tensor)
        if exact.shape != recorded.shape:
            why = f"it returns something else here: {tensor.slot} has the shape {exact.shape}, not {recorded.shape}"
            return Replayed(call, why=why)
        error = error_of(recorded, exact, moved, tensor.dtype, unit)
        limit = _limit_of(unit, sizes, max(1, exact.size))
        found.append(Replayed(call, tensor.slot, tensor.dtype, error, limit))
    return max(found, key=lambda each: each.units / each.limit)


@contextmanager
def _limited(memory: int) -> Iterator[None]:
    """Let the process take ``memory`` more bytes at most, where the system can limit it: allocating more raises."""
    now = _data()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if now is not None:
        most = now + memory
        resource.setrlimit(resource.RLIMIT_DATA, (most if soft < 0 else min(most, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data() -> int | None:
    """Return how many bytes of data the process has; None where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        text = Path("/proc/self/status").read_text()
        return int(text.partition("VmData:")[2].split()[0]) * 1024
    return None
