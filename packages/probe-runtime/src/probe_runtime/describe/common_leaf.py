"""Provide what the tensor leaves of all frameworks share: counting, files, numpy arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy.typing as npt
from probe_format.values import ValuePath
from probe_format.write import Coverage, Summary, Tally

from .arrays import array_json
from .leaf import Placement
from .run_error import RunError
from .step_files import StepFiles
from .tensor_options import TensorOptions, summarise


class CommonLeaf:
    """Count tensors, write their files, and describe numpy arrays, in the same way for every framework.

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
        numbers: gives the numbers of the step's holes, where there is another leaf.
        summary: gets the numbers of tensors; likewise.
        """
        self._o = options
        self._coverage = coverage
        self._append = append
        self._holes = itertools.count(1) if numbers is None else numbers
        self._files = StepFiles(
            options.directory,
            coverage,
            append,
            deferred=options.deferred,
            bound=options.bound,
            once=options.share,
            numbers=self._holes,
        )
        self._tensors = Tally()
        self.summary = summary or Summary()

    @property
    def tally(self) -> dict[str, int]:
        """Return the number of tensors seen so far; each of them has its tensor object."""
        return {"tensors": self._tensors.value}

    def count(self) -> None:
        """Count a tensor whose object was described a moment ago."""
        self._tensors.add()

    def aside(self) -> AbstractContextManager[Any]:
        """Return a context for what Probe computes, for a framework in which nothing of the user's sees that."""
        return nullcontext()

    def met(self, error: Exception) -> None:
        """Keep an error of the run for `hand_on`: the first one, as others follow from it."""
        self._met = self._met or RunError(error)
        self.waits = True

    def hand_on(self) -> None:
        """Raise the error of the run that was met, if there is one, once."""
        found, self._met = self._met, None
        if found is not None:
            raise found

    def flush(self) -> None:
        """Wait until everything that was begun is on disk."""
        self._files.flush()

    def close(self) -> None:
        """End the writing thread, if there is one."""
        self._files.close()

    def _array(self, placement: Placement, a: npt.NDArray[Any], path: ValuePath) -> bytes:
        """Return an array's object as msprobe writes it: no requires_grad, statistics for ints and bools too."""
        return array_json(a, placement, path, self._o, self._files, self._coverage, self._summarise)

    def _summarise(self, placement: Placement, path: ValuePath, tensor: Mapping[str, Any]) -> None:
        """Add one tensor object whose numbers are there to the summary."""
        summarise(self.summary, placement, path, tensor, self._holes)
