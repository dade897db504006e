"""Describe the values of one step as JSON and files, whatever framework their tensors are of."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
from attrs import define, evolve, field
from probe_format.debug_names import blank
from probe_format.journal import events
from probe_format.jsonio import dumps, loads, members
from probe_format.schema import tensors
from probe_format.values import UNKNOWN, ValueEncoder, ValuePath
from probe_format.write import Summary
from probe_runtime.describe import FileNames, Placement, StepFiles, TensorOptions, array_json, plain_array

from .frameworks import MissingPackage, SavedLeaf, framework_of, home
from .step_journal import StepJournal

__all__ = ["DescribedValues"]


@define(eq=False)
class DescribedValues:
    """Describe values, and count the tensors in them. Safe to use from many threads.

    journal: of the step.
    options: what is described of each tensor.
    wants_files: whether tensors are written to files.
    """

    journal: StepJournal
    options: TensorOptions
    wants_files: bool
    _summary: Summary = field(factory=Summary)
    _names: FileNames = field(factory=FileNames)
    _array_files: StepFiles = field(init=False)
    _leaves: dict[str, SavedLeaf] = field(factory=dict)
    _straight: bool = field(init=False)
    _lock: threading.RLock = field(factory=threading.RLock)

    def __attrs_post_init__(self) -> None:
        o = self.options
        # Whether four numbers are all that is wanted of a plain tensor.
        self._straight = o.statistics and not (self.wants_files or o.checksum or o.zero_count)
        self._array_files = StepFiles(
            self.options.directory, self.journal.coverage, self.journal.writer.append
        )

    def placement(self, record: str, *, wants_file: bool = True) -> Placement:
        """Return where the tensors of a record go. They get no file where the step wants none."""
        return Placement(record, "", wants_file and self.wants_files, names=self._names)

    def describe(self, placement: Placement, variable: Any) -> tuple[bytes, Any]:
        """Return a value as JSON, and the form of its gradients (`blank`).

        Its tensors that can have gradients are in ``placement.found`` afterwards.

        Raises MissingPackage when the package of a tensor's framework is not installed.
        """
        if self._straight and (finished := self._plain(placement, variable)) is not None:
            return finished, None
        missing: list[MissingPackage] = []
        tree = ValueEncoder(partial(self._leaf, placement, missing), self._count_unsupported)
        value = tree.describe(variable)
        if missing:
            raise missing[0]
        described = dumps(value)
        for leaf in list(self._leaves.values()):
            described = leaf.fill_numbers(described)
        return described, blank(value)

    def _plain(self, placement: Placement, variable: Any) -> bytes | None:
        """Return the finished JSON of a plain array or tensor; None where the general way describes the value."""
        try:
            if type(variable) is np.ndarray:
                found, kind = plain_array(variable), "arrays"
            else:
                leaf = self._leaves.get(str(framework_of(type(variable))))  # type: ignore[arg-type]
                found, kind = None if leaf is None else leaf.plain(variable, placement.found), "tensors"
        except Exception:  # the general way says what is wrong with it
            return None
        if found is None:
            return None
        json, norm = found
        self.journal.coverage.outcome(kind, "recorded")
        if norm > self._summary.least:
            self._summary.keep(placement.record, norm)
        return json

    def describe_gradient(
        self, leaf: SavedLeaf, placement: Placement, gradient: Any, path: ValuePath, *, count: bool
    ) -> bytes:
        """Return a gradient as JSON.

        leaf: of the tensor's framework (`leaf_of`).
        path: of the tensor in the value that was saved.
        count: whether it is counted as a tensor of its own.
        """
        try:
            value = leaf.leaf(placement, gradient, path)
        except OSError as error:
            self.journal.lost(f"file of {placement.record}", error)
            value = _without_file(leaf.leaf(evolve(placement, wants_file=False), gradient, path), error)
        finished = leaf.fill_numbers(value)
        if count:
            self._count_tensor()
            self._summary.add(placement.record, ".".join(map(str, path)), loads(finished))
        return finished

    def leaf_of(self, tensor: Any) -> SavedLeaf:
        """Return what describes the tensors of a tensor's framework, one of which was described before."""
        return self._leaves[str(framework_of(type(tensor)))]  # type: ignore[arg-type]

    def remove_files(self, value: bytes) -> None:
        """Remove the files of a value that gets no record, as nothing refers to them."""
        for _, tensor in tensors(loads(value)):
            if isinstance(tensor.get("data_name"), str):
                (self.options.directory / tensor["data_name"]).unlink(missing_ok=True)

    def summary(self) -> dict[str, Any]:
        """Return the largest norms, and the first value that is not finite, for the report."""
        return self._summary.json()

    def close(self) -> None:
        """Release every tensor."""
        for leaf in self._leaves.values():
            leaf.close()

    def _leaf(self, placement: Placement, missing: list[MissingPackage], value: Any, path: ValuePath) -> Any:
        met = len(placement.found)
        try:
            return self._described(placement, missing, value, path)
        except OSError as error:  # its file could not be written; its statistics still can
            if not placement.wants_file:
                raise
            self.journal.lost(f"file of {placement.record}", error)
            del placement.found[met:]
            out = self._described(evolve(placement, wants_file=False), missing, value, path)
            return _without_file(out, error) if _is_tensor(out) else out

    def _described(
        self, placement: Placement, missing: list[MissingPackage], value: Any, path: ValuePath
    ) -> Any:
        if isinstance(value, np.ndarray):
            out = array_json(value, placement, path, self.options, self._array_files, self.journal.coverage)
        else:
            framework = framework_of(type(value))  # type: ignore[arg-type]
            if framework is None:
                return UNKNOWN
            try:
                leaf = self._framework(framework)
            except MissingPackage as error:
                missing.append(error)
                return None
            out = leaf.leaf(placement, value, path)
            if _is_tensor(out):
                self._count_tensor()
                out = leaf.fill_numbers(out)
        if _is_tensor(out):
            self._summary.add(placement.record, ".".join(map(str, path)), loads(out))
        return out

    def _framework(self, name: str) -> SavedLeaf:
        """Return what describes a framework's tensors. The first framework that is met is named in the header."""
        writer = self.journal.writer
        with self._lock:
            if name not in self._leaves:
                place = home(name)
                if not self._leaves and writer.header["framework"] != place.FRAMEWORK:
                    writer.header["framework"] = place.FRAMEWORK
                    try:
                        writer.append(events.head(writer.header))
                    except OSError as error:
                        self.journal.lost("the framework's name", error)
                self._leaves[name] = place.open_leaf(self.options, self.journal.coverage)
            return self._leaves[name]

    def _count_tensor(self) -> None:
        self.journal.coverage.outcome("tensors", "recorded")

    def _count_unsupported(self, reason: str) -> None:
        self.journal.coverage.add("unsupported", f"value: {reason}")


def _is_tensor(described: Any) -> bool:
    return isinstance(described, bytes) and "dtype" in loads(described)


def _without_file(described: bytes, error: OSError) -> bytes:
    """Return a described tensor with the reason why it has no file."""
    return described[:-1] + members({"lost": f"tensor file: {error.strerror or type(error).__name__}"}) + b"}"
