"""Save the values of one step: hold its directory and journal, and wait for the gradients of its values."""

from __future__ import annotations

import itertools
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, evolve, field
from probe_format.debug_names import blank, debug_record, gradient_record
from probe_format.journal import events
from probe_format.schema import tensors
from probe_format.values import UNKNOWN, ValueEncoder, ValuePath, unsupported
from probe_format.write import FORMAT_VERSION, Coverage, RankWriter, Summary, explain
from probe_runtime.config import Config
from probe_runtime.describe import FileNames, Placement, StepFiles, TensorOptions, array_json, options_of
from probe_runtime.notice import notice

from .claim import Claim
from .counts import Counts
from .frameworks import MissingPackage, SavedLeaf, framework_of, home

__all__ = ["SavedStep"]

_MOST_PENDING = 1000


@define(eq=False)
class SavedStep:
    """The state of one step, from its first save() until step(). Safe to use from many threads.

    claim: the step's directory.
    writer: writes the journal and the files.
    options: what is described of each tensor.
    wants_files: whether tensors are written to files.
    alive: whether anything more is recorded.
    coverage: counts what was seen and recorded.
    """

    claim: Claim
    writer: RankWriter
    options: TensorOptions
    wants_files: bool
    alive: bool = True
    coverage: Coverage = field(factory=Coverage)
    _summary: Summary = field(factory=Summary)
    _counts: Counts = field(factory=Counts)
    _names: FileNames = field(factory=FileNames)
    _array_files: StepFiles = field(init=False)
    _leaves: dict[str, SavedLeaf] = field(factory=dict)
    _watches: list[Callable[[], None]] = field(factory=list)
    _awaited: int = 0
    _lock: threading.RLock = field(factory=threading.RLock)
    _idle: threading.Condition = field(factory=threading.Condition)
    _busy: int = 0
    _over: bool = False
    _full: bool = False
    _pending: list[dict[str, Any]] = field(
        factory=list
    )  # faults that a full disk refused: tried again at the end of the step

    @classmethod
    def begin(
        cls, config: Config, claim: Claim, tool: str, framework: str | None, about: dict[str, Any]
    ) -> SavedStep:
        """Open the journal of a step in its directory.

        config: the configuration.
        claim: the step's directory.
        tool: name and version of the program, for the header.
        framework: for the header; None where it is not known yet.
        about: more keys of the header (rank, step).

        Raises OSError when the journal cannot be written.
        """
        files = config.task == "tensor"
        header: dict[str, Any] = {
            "task": config.task,
            "level": "debug",
            "framework": framework or "numpy",
            "dump_data_dir": str(claim.directory / "dump_tensor_data") if files else None,
            "format_version": FORMAT_VERSION,
            "tool": tool,
            **about,
        }
        if config.summary_mode != "statistics":
            header["checksum"] = "crc32" if config.summary_mode == "md5" else "xor64"
        writer = RankWriter(claim.directory, header)
        # No sharing: writes that bypass the version counter (.data, numpy views) between two saves would go unseen.
        options = evolve(
            options_of(config, writer.tensor_directory), share=False, deferred=False, overlap=True
        )
        return cls(claim, writer, options, files)

    def __attrs_post_init__(self) -> None:
        self._array_files = StepFiles(self.options.directory, self.coverage, self.writer.append)

    @property
    def directory(self) -> Path:
        """Return the folder of this step."""
        return self.claim.directory

    def enter(self) -> bool:
        """Begin to record a value or gradient; return False when the step is over. After True, call `leave`."""
        with self._idle:
            if self._over:
                return False
            self._busy += 1
            return True

    def leave(self) -> None:
        """End what `enter` began."""
        with self._idle:
            self._busy -= 1
            if not self._busy:
                self._idle.notify_all()

    def save(self, variable: Any, name: str, *, backward: bool) -> None:
        """Record one value. When this returns, the value survives the death of the process.

        variable: the value.
        name: the name that it is saved under.
        backward: whether its gradient is recorded too.

        Raises MissingPackage when the package of its framework is not installed. Any other fault, such as a full disk,
        costs this value, never the run.
        """
        number = self._counts.next_number(name)
        placement = self._placement(debug_record(name, number), self.wants_files)
        partner = gradient_record(name, self._counts.gradient_number(name, number)) if backward else None
        try:
            try:
                written = self._write(placement.record, partner, self._describe(placement, variable))
            except (MissingPackage, OSError):
                raise
            except Exception as error:  # a value in it, or its description, cannot be written
                self._fault(f"save of {name!r}", error)
                placement.found.clear()
                why = f"saving it raised {type(error).__name__}; see the faults"
                written = self._write(placement.record, partner, unsupported(variable, why))
        except MissingPackage:
            raise
        except Exception as error:
            self._lost(f"save of {name!r}", error)
            return
        if written and partner is not None:
            for path, tensor in placement.found:
                self._watch(partner, path, tensor)

    def _placement(self, record: str, wants_file: bool) -> Placement:
        return Placement(record, "", wants_file, names=self._names)

    def _write(self, record: str, partner: str | None, value: Any) -> bool:
        """Append the event of one value; return False when the step is over. Raises what the writer raises."""
        try:
            event = events.save(record, value, None if partner is None else (partner, blank(value)))
            if self.alive:
                self.writer.append(event)
        except Exception:
            self._unlink(value)
            raise
        return self.alive

    def _unlink(self, value: Any) -> None:
        """Remove the files of a value that gets no record, as nothing refers to them."""
        for _, tensor in tensors(value):
            if isinstance(tensor.get("data_name"), str):
                (self.options.directory / tensor["data_name"]).unlink(missing_ok=True)

    def _describe(self, placement: Placement, variable: Any) -> Any:
        missing: list[MissingPackage] = []
        tree = ValueEncoder(partial(self._leaf, placement, missing), self._count_unsupported)
        value = tree.describe(variable)
        if missing:
            raise missing[0]
        for leaf in list(self._leaves.values()):
            leaf.fill_numbers(value)
        return value

    def _leaf(self, placement: Placement, missing: list[MissingPackage], value: Any, path: ValuePath) -> Any:
        met = len(placement.found)
        try:
            return self._described(placement, missing, value, path)
        except OSError as error:  # its file could not be written; its statistics still can
            if not placement.wants_file:
                raise
            self._lost(f"file of {placement.record}", error)
            del placement.found[met:]
            out = self._described(evolve(placement, wants_file=False), missing, value, path)
            if isinstance(out, dict) and "dtype" in out:
                out["lost"] = f"tensor file: {error.strerror or type(error).__name__}"
            return out

    def _described(self, placement: Placement, missing: list[MissingPackage], value: Any, path: ValuePath) -> Any:
        if isinstance(value, np.ndarray):
            out = array_json(value, placement, path, self.options, self._array_files, self.coverage)
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
            if isinstance(out, dict) and "dtype" in out:
                self._count_tensor()
        if isinstance(out, dict) and "dtype" in out and "$" not in out:
            self._summary.add(placement.record, ".".join(map(str, path)), out)
        return out

    def _framework(self, name: str) -> SavedLeaf:
        with self._lock:
            if name not in self._leaves:
                place = home(name)
                if not self._leaves and self.writer.header["framework"] != place.FRAMEWORK:
                    self.writer.header["framework"] = place.FRAMEWORK
                    try:
                        self.writer.append(events.head(self.writer.header))
                    except OSError as error:
                        self._lost("the framework's name", error)
                self._leaves[name] = place.open_leaf(self.options, self.coverage)
            return self._leaves[name]

    def _count_tensor(self) -> None:
        self.coverage.outcome("tensors", "recorded")

    # -- gradients ------------------------------------------------------------------------------------

    def _watch(self, record: str, path: ValuePath, tensor: Any) -> None:
        try:
            leaf, passes = self._leaves[str(framework_of(type(tensor)))], itertools.count()  # type: ignore[arg-type]
            undo = leaf.watch(tensor, partial(self._arrived, leaf, record, path, passes))
        except Exception as error:
            self._fault(f"waiting for {record}", error)
            return
        if undo is not None:
            with self._lock:
                self._watches.append(undo)
                self._awaited += 1

    def _arrived(
        self, leaf: SavedLeaf, record: str, path: ValuePath, passes: Iterator[int], gradient: Any
    ) -> None:
        """Record the gradient of one backward pass.

        passes: counts the backward passes; only the first gets a file.
        gradient: None where the pass brought none.
        """
        if not self.alive or gradient is None or not self.enter():
            return
        try:
            first = next(passes) == 0
            placement = self._placement(record, self.wants_files and first)
            try:
                value = leaf.leaf(placement, gradient, path)
            except OSError as error:
                self._lost(f"file of {record}", error)
                value = leaf.leaf(evolve(placement, wants_file=False), gradient, path)
                value["lost"] = f"tensor file: {error.strerror or type(error).__name__}"
            leaf.fill_numbers(value)
            if first:
                self._count_tensor()
                self._summary.add(record, ".".join(map(str, path)), value)
                with self._lock:
                    self._awaited -= 1
            if self.alive:
                try:
                    self.writer.append(events.grad(record, path, value))
                except Exception:
                    self._unlink(value)
                    raise
        except Exception as error:
            self._lost(f"gradient {record}", error)
        finally:
            self.leave()

    # -- the end --------------------------------------------------------------------------------------

    def end(self) -> dict[str, Any] | None:
        """Write debug.json and report.json. Return the report, or None when only the journal could be kept."""
        with self._idle:
            self._over = True
            self._idle.wait_for(lambda: not self._busy)  # what other threads have begun belongs to this step
        report = None
        if self.alive and not self.writer.forked:
            self._release()
            try:
                for event in self._pending:
                    self.writer.append(event)
                self.writer.append(events.tally(self._tally()))
                report = self.writer.finish(final=True)
            except OSError as error:
                self.break_off(error)
        self.abandon()
        return report

    def _tally(self) -> dict[str, Any]:
        if self._awaited:
            self.coverage.add("left_out", "gradients that had not arrived", self._awaited)
        content = self.coverage.json()
        content["summary"] = self._summary.json()
        return content

    def abandon(self) -> None:
        """Release everything and write nothing more. The journal stays readable."""
        self.alive = False
        self._release()
        for leaf in self._leaves.values():
            leaf.close()
        self.writer.close()
        self.claim.release()

    def disown(self) -> None:
        """Release this step in a fork()ed child, as it belongs to the parent."""
        self.alive = False
        self.writer.close()
        self.claim.release()

    def _release(self) -> None:
        with self._lock:
            watches, self._watches = self._watches, []
        for undo in watches:
            undo()

    def break_off(self, error: OSError) -> None:
        """Record nothing more in this step, and warn once that it cannot be written."""
        with self._lock:
            first, self.alive = self.alive, False
        if first:
            notice(
                f"Probe saves nothing more in this step: {explain(error, self.directory)} The run goes on; what "
                f"was saved before is readable (`probe recover {self.directory}`)."
            )

    # -- inside ---------------------------------------------------------------------------------------

    def _lost(self, where: str, error: Exception) -> None:
        """Record that something could not be written, and warn once in a step. The next value is tried again."""
        self._fault(where, error)
        if not isinstance(error, OSError):
            return
        with self._lock:
            first, self._full = not self._full, True
        if first:
            notice(
                f"Probe could not write everything of a saved value ({where}): {explain(error, self.directory)} The "
                "run goes on, and so does saving."
            )

    def _count_unsupported(self, reason: str) -> None:
        self.coverage.add("unsupported", f"value: {reason}")

    def _fault(self, where: str, error: Exception) -> None:
        self.coverage.add("failed", "values")
        event = events.fault(where, "".join(traceback.format_exception(error)))
        if self.alive:
            try:
                self.writer.append(event)
            except Exception:
                if len(self._pending) < _MOST_PENDING:
                    self._pending.append(event)
