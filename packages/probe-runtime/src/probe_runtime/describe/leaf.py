"""Provide the base of each framework's leaf, which describes tensors as JSON, with their statistics and files."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy.typing as npt
from probe_format.jsonio import dumps
from probe_format.values import ValuePath
from probe_format.write import Coverage, Summary, Tally

from .arrays import array_json
from .placement import Placement
from .run_error import RunError
from .step_files import StepFiles
from .tensor_options import TensorOptions, summarise
from .tensor_store import WriteFile


class Leaf:
    """Describe the values of one framework: as JSON, with their statistics and files.

    A framework's package implements `leaf`, `tensor` and, where numbers come late, `flush_numbers`.

    tensor_types: the types, without their subclasses, whose every value is a tensor for `tensor`.
    constant_types: the types whose values never change; equal values of a type have equal JSON.
    waits: whether `flush_numbers` may have something to do: a number or an error has waited in this step.
    summary: what the report says about the numbers.
    """

    tensor_types: frozenset[type] = frozenset()
    constant_types: frozenset[type] = frozenset()
    waits = False
    _met: RunError | None = None

    def __init__(
        self,
        options: TensorOptions,
        coverage: Coverage,
        append: Callable[[Any], None],
        numbers: Iterator[int] | None = None,
        summary: Summary | None = None,
    ) -> None:
        """Begin a step.

        options: what to describe.
        coverage: counts what was seen and recorded.
        append: takes events of the journal.
        numbers: gives the numbers of the step's holes, where the step has another leaf.
        summary: gets the numbers of tensors, where the step has another leaf.
        """
        self._o = options
        self._coverage = coverage
        self._append = append
        self._holes = itertools.count(1) if numbers is None else numbers
        self._files = StepFiles(options, coverage, append, numbers=self._holes)
        self._tensors = Tally()
        self.summary = summary or Summary()

    def leaf(self, placement: Placement, value: Any, path: ValuePath) -> Any:
        """Return the finished JSON of a value of the framework, else `probe_format.values.UNKNOWN`.

        Appends each tensor to ``placement.found``.
        """
        raise NotImplementedError

    def tensor(self, placement: Placement, t: Any, path: ValuePath) -> bytes:
        """Return the tensor object of ``t``, of any shape and dtype; write its file where the placement wants one.

        It is finished JSON, with a hole for what comes later (`probe_format.journal.hole`). Call this within `aside`,
        which is entered once for all tensors of a record.
        """
        raise NotImplementedError

    def flush_numbers(self) -> None:
        """Write the numbers that wait on a device, if there are enough of them; here none wait. Raises as `hand_on`."""
        self.hand_on()

    @property
    def tally(self) -> dict[str, int]:
        """Return the number of tensors seen so far; each of them has its tensor object."""
        return {"tensors": self._tensors.value}

    def count(self) -> None:
        """Count a tensor whose object was described a moment ago."""
        self._tensors.add()

    def aside(self) -> AbstractContextManager[Any]:
        """Return a context in which the user's modes and tensor subclasses do not see what Probe computes.

        It can be left and entered again. Here it does nothing: not every framework has such modes.
        """
        return nullcontext()

    def met(self, error: Exception) -> None:
        """Keep an error of the run, met when Probe looked at a tensor, for `hand_on`: the first, as others follow."""
        self._met = self._met or RunError(error)
        self.waits = True

    def hand_on(self) -> None:
        """Raise the error of the run that was met, if there is one, once."""
        found, self._met = self._met, None
        if found is not None:
            raise found

    def limit(self, limited: Callable[[WriteFile, int], WriteFile]) -> None:
        """Make each file within a limit: see `StepFiles.limit`."""
        self._files.limit(limited)

    def flush(self) -> None:
        """Wait until everything that was begun is on disk."""
        self._files.flush()

    def close(self) -> None:
        """End the writing thread, if there is one."""
        self._files.close()

    def _array(self, placement: Placement, a: npt.NDArray[Any], path: ValuePath) -> bytes:
        """Return an array's object as msprobe writes it: no requires_grad, statistics for ints and bools too."""
        return array_json(a, placement, path, self._o, self._files, self._coverage, self._summarise)

    def _object(self, placement: Placement, value: Any, path: ValuePath, found: dict[str, Any]) -> bytes:
        """Return the JSON of an object that is no tensor. found: its keys, but for the tensor that a P2POp has."""
        if "class_type" in found:  # as only what carries a tensor has: a P2POp
            found["tensor"] = b"null"  # before the call, a tensor that only receives means nothing
            if not (placement.category == "input" and found["op"] == "irecv"):
                found["tensor"] = self.leaf(placement, value.tensor, (*path, "tensor"))
        return dumps(found)

    def _unsupported(self, why: str) -> dict[str, Any]:
        """Count a tensor without numbers; return the key of its object that says why it has none."""
        self._coverage.add("unsupported", f"tensor: {why}")
        return {"unsupported": why}

    def _summarise(self, placement: Placement, path: ValuePath, tensor: Mapping[str, Any]) -> None:
        """Add one tensor object whose numbers are there to the summary."""
        summarise(self.summary, placement, path, tensor, self._holes)
