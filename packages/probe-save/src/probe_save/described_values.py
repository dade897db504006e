"""Describe the values that `save()` gets in one step, and their gradients, as JSON and files, of any framework."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
from attrs import define, field
from probe_format.journal import events
from probe_format.jsonio import dumps, loads
from probe_format.values import UNKNOWN, Described, ValuePath
from probe_format.write import Summary
from probe_runtime.collect import Walk
from probe_runtime.describe import FileNames, Placement, StepFiles, TensorOptions, array_json, summarise

from .frameworks import MissingPackage, SavedLeaf, framework_of, home
from .step_journal import StepJournal


@define
class SavedPlace(Placement):
    """The placement of a saved value, which has a record of its own.

    missing: the error for a tensor in it whose framework has no package here.
    """

    missing: MissingPackage | None = None


@define(eq=False)
class DescribedValues:
    """Describe values, and count the tensors in them. Safe to use from many threads."""

    tensor_types = constant_types = frozenset[type]()
    journal: StepJournal
    options: TensorOptions
    wants_files: bool
    _summary: Summary = field(factory=Summary)
    _numbers: Iterator[int] = field(factory=itertools.count)
    _names: FileNames = field(factory=FileNames)
    _array_files: StepFiles = field(init=False)
    _leaves: dict[str, SavedLeaf] = field(factory=dict)
    _later: dict[str, SavedLeaf] = field(factory=dict)  # for gradients of later backward passes
    _walk: Walk = field(init=False)
    _lock: threading.RLock = field(factory=threading.RLock)

    def __attrs_post_init__(self) -> None:
        coverage = self.journal.coverage
        self._array_files = StepFiles(self.options, coverage, self.journal.writer.append)
        self._walk = Walk(self, lambda reason: coverage.add("unsupported", f"value: {reason}"))

    def place(self, record: str, *, wants_file: bool = True) -> SavedPlace:
        """Return the placement for a record. wants_file: whether its tensors get files, if the step wants any."""
        names, lost = self._names.of_another(), partial(self.journal.lost, f"file of {record}")
        return SavedPlace(record, "", wants_file and self.wants_files, label=None, names=names, lost=lost)

    def describe(self, place: SavedPlace, variable: Any) -> Described:
        """Return the JSON of a value, and the form of its gradients.

        Its tensors that can have gradients are in ``place.found`` afterwards.

        Raises MissingPackage when the package of a tensor's framework is not installed.
        """
        value, form = self._walk.value(place, variable)
        if place.missing is not None:
            raise place.missing
        for leaf in list(self._leaves.values()):
            value = leaf.fill_numbers(value)
        return value, form

    def describe_gradient(self, place: SavedPlace, gradient: Any, path: ValuePath, *, later: bool) -> bytes:
        """Return the JSON of a gradient.

        path: of the tensor in the value that was saved.
        later: whether it came in a later backward pass: then only its numbers are kept, and it is not counted.
        """
        name = framework_of(type(gradient))
        leaf = self._framework(str(name), self._later if later else self._leaves)
        value = leaf.fill_numbers(leaf.leaf(place, gradient, path))
        if later:
            value = dumps({key: number for key, number in loads(value).items() if key in events.LATER_PASS})
        return value

    def leaf_of(self, tensor: Any) -> SavedLeaf:
        """Return the leaf of a tensor's framework, which has described a tensor before."""
        return self._leaves[str(framework_of(type(tensor)))]

    def remove_files(self, place: SavedPlace) -> None:
        """Remove the files of a value that gets no record, as nothing refers to them."""
        for name in place.names.claimed if place.names else ():
            (self.options.directory / name).unlink(missing_ok=True)

    def tally(self) -> dict[str, Any]:
        """Return the content of the tally: what was seen and recorded, the largest norms, what is not finite."""
        content = self.journal.coverage.json()
        tensors = sum(leaf.tally["tensors"] for leaf in self._leaves.values())
        for kind in ("seen", "recorded"):
            content["counts"][kind].update({"tensors": tensors} if tensors else {})
        return {**content, "summary": self._summary.json()}

    def close(self) -> None:
        for leaf in [*self._leaves.values(), *self._later.values()]:
            leaf.close()
        self._array_files.close()

    # -- what the walk asks ---------------------------------------------------------------------------

    def aside(self) -> AbstractContextManager[Any]:
        """Return an empty context: each framework's leaf enters its own."""
        return nullcontext()

    def leaf(self, place: Any, value: Any, path: ValuePath) -> Any:
        """Return the JSON of an array or a framework's value, `UNKNOWN` for any other."""
        if isinstance(value, np.ndarray):
            summary = partial(summarise, self._summary, numbers=self._numbers)
            coverage = self.journal.coverage
            return array_json(value, place, path, self.options, self._array_files, coverage, summary)
        framework = framework_of(type(value))
        if framework is None:
            return UNKNOWN
        try:
            leaf = self._framework(framework, self._leaves)
        except MissingPackage as error:
            place.missing = error
            return b"null"
        return leaf.leaf(place, value, path)

    tensor = leaf

    def _framework(self, name: str, leaves: dict[str, SavedLeaf]) -> SavedLeaf:
        """Return what describes a framework's tensors. The first framework that is met is named in the header."""
        with self._lock:
            if name not in leaves:
                found = home(name)
                if not self._leaves:
                    self.journal.name_framework(found.FRAMEWORK)
                summary = self._summary if leaves is self._leaves else Summary()
                leaves[name] = found.open_leaf(self.options, self.journal.coverage, self._numbers, summary)
            return leaves[name]
