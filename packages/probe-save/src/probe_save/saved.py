"""One step of saved values: its directory, its journal, the gradients that are still to come."""

from __future__ import annotations

import itertools
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from attrs import define, field
from probe_format.config import Config
from probe_format.coverage import Coverage
from probe_format.debug import blank, debug_record, gradient_record
from probe_format.layout import explain
from probe_format.notice import notice
from probe_format.summary import Summary
from probe_format.tree import UNKNOWN, Path, Tree, unsupported
from probe_format.write import FORMAT_VERSION, RankWriter

from .arrays import array_json
from .claim import Claim
from .counts import Counts
from .frameworks import MissingPackage, SavedLeaf, framework_of, home
from .spot import FileNames, LeafOptions, Spot

__all__ = ["SavedStep"]


@define(eq=False)
class SavedStep:
    """The state of one step, from its first save() until step(). Safe to use from many threads."""

    claim: Claim
    writer: RankWriter
    options: LeafOptions
    files: bool
    alive: bool = True
    coverage: Coverage = field(factory=Coverage)
    _summary: Summary = field(factory=Summary)
    _counts: Counts = field(factory=Counts)
    _names: FileNames = field(factory=FileNames)
    _leaves: dict[str, SavedLeaf] = field(factory=dict)
    _watches: list[Callable[[], None]] = field(factory=list)
    _awaited: int = 0
    _lock: threading.RLock = field(factory=threading.RLock)
    _idle: threading.Condition = field(factory=threading.Condition)
    _busy: int = 0
    _over: bool = False

    @classmethod
    def begin(
        cls, config: Config, claim: Claim, tool: str, framework: str | None, about: dict[str, Any]
    ) -> SavedStep:
        """Open the directory and its journal. framework, about: for the header. Raises OSError."""
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
        options = LeafOptions(
            writer.tensor_directory,
            statistics=config.summary_mode != "xor",
            checksum=None if config.summary_mode == "statistics" else config.summary_mode,
            zero_count=config.zero_count,
        )
        return cls(claim, writer, options, files)

    @property
    def directory(self) -> FilePath:
        """Where everything of this step goes."""
        return self.claim.directory

    def enter(self) -> bool:
        """Begin to record something; False when the step is over. Each True needs a `leave`."""
        with self._idle:
            if self._over:
                return False
            self._busy += 1
            return True

    def leave(self) -> None:
        """What was begun is recorded."""
        with self._idle:
            self._busy -= 1
            if not self._busy:
                self._idle.notify_all()

    def save(self, variable: Any, name: str, *, backward: bool) -> None:
        """Record one value; when this returns it survives the death of the process.

        Raises MissingPackage. Any other fault costs this value, or on a full disk this step, never the run.
        """
        number = self._counts.take(name, gradient=backward)
        spot = Spot(debug_record(name, number), self.files, self._names)
        event: dict[str, Any] = {"k": "save", "n": spot.record}
        try:
            event["v"] = self._describe(spot, variable)
        except OSError as error:
            self.break_off(error)
            return
        except MissingPackage:
            raise
        except Exception as error:
            self._fault(f"save of {name!r}", error)
            spot.found.clear()
            event["v"] = unsupported(variable, f"saving it raised {type(error).__name__}; see the faults")
        if backward:
            event["g"] = [gradient_record(name, number), blank(event["v"])]
        self._append(event)
        if backward:
            for leaf, path, tensor in spot.found:
                self._watch(leaf, gradient_record(name, number), path, tensor)

    def _describe(self, spot: Spot, variable: Any) -> Any:
        missing: list[MissingPackage] = []
        tree = Tree(partial(self._leaf, spot, missing), self._note)
        value = tree.describe(variable)
        if missing:
            raise missing[0]
        for leaf in list(self._leaves.values()):
            leaf.settle(value)
        return value

    def _leaf(self, spot: Spot, missing: list[MissingPackage], value: Any, path: Path) -> Any:
        if isinstance(value, np.ndarray):
            out = array_json(value, self.options, self.coverage, spot, path)
        else:
            framework = framework_of(type(value))  # type: ignore[arg-type]
            if framework is None:
                return UNKNOWN
            try:
                leaf = self._framework(framework)
            except MissingPackage as error:
                missing.append(error)
                return None
            out = leaf.leaf(spot, value, path)
            if isinstance(out, dict) and "dtype" in out:
                self._count_tensor()
        if isinstance(out, dict) and "dtype" in out and "$" not in out:
            self._summary.add(spot.record, ".".join(map(str, path)), out)
        return out

    def _framework(self, name: str) -> SavedLeaf:
        with self._lock:
            if name not in self._leaves:
                place = home(name)
                if not self._leaves and self.writer.header["framework"] != place.FRAMEWORK:
                    self.writer.header["framework"] = place.FRAMEWORK
                    self._append({"k": "head", "header": self.writer.header})
                self._leaves[name] = place.open_leaf(self.options, self.coverage)
            return self._leaves[name]

    def _count_tensor(self) -> None:
        self.coverage.outcome("tensors", "recorded")

    # -- gradients ------------------------------------------------------------------------------------

    def _watch(self, leaf: SavedLeaf, record: str, path: Path, tensor: Any) -> None:
        try:
            passes = itertools.count()
            undo = leaf.watch(tensor, partial(self._arrived, leaf, record, path, passes))
        except Exception as error:
            self._fault(f"waiting for {record}", error)
            return
        if undo is not None:
            with self._lock:
                self._watches.append(undo)
                self._awaited += 1

    def _arrived(self, leaf: SavedLeaf, record: str, path: Path, passes: Iterator[int], gradient: Any) -> None:
        """A backward pass has reached the tensor; ``gradient`` is None where it brought nothing."""
        if not self.alive or gradient is None or not self.enter():
            return
        try:
            first = next(passes) == 0
            spot = Spot(record, self.files and first, self._names)
            value = leaf.leaf(spot, gradient, path)
            leaf.settle(value)
            if first:
                self._count_tensor()
                self._summary.add(record, ".".join(map(str, path)), value)
                with self._lock:
                    self._awaited -= 1
            self._append({"k": "grad", "n": record, "p": list(path), "v": value})
        except OSError as error:
            self.break_off(error)
        except Exception as error:
            self._fault(f"gradient {record}", error)
        finally:
            self.leave()

    # -- the end --------------------------------------------------------------------------------------

    def end(self) -> dict[str, Any] | None:
        """The step is over: write debug.json and report.json. None when the journal alone could be kept."""
        with self._idle:
            self._over = True
            self._idle.wait_for(lambda: not self._busy)  # what other threads have begun still belongs here
        report = None
        if self.alive and not self.writer.forked:
            self._release()
            try:
                self._append({"k": "tally", "d": self._tally()})
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
        """Let go of everything and write nothing more; what is in the journal stays readable."""
        self.alive = False
        self._release()
        for leaf in self._leaves.values():
            leaf.close()
        self.writer.close()
        self.claim.release()

    def disown(self) -> None:
        """In a fork()ed child: this step is the parent's."""
        self.alive = False
        self.writer.close()
        self.claim.release()

    def _release(self) -> None:
        with self._lock:
            watches, self._watches = self._watches, []
        for undo in watches:
            undo()

    def break_off(self, error: OSError) -> None:
        """Record nothing more in this step: it cannot be written."""
        with self._lock:
            first, self.alive = self.alive, False
        if first:
            notice(
                f"Probe saves nothing more in this step: {explain(error, self.directory)} The run goes on; what "
                f"was saved before is readable (`probe recover {self.directory}`)."
            )

    # -- inside ---------------------------------------------------------------------------------------

    def _append(self, event: dict[str, Any]) -> None:
        if self.alive:
            try:
                self.writer.append(event)
            except OSError as error:
                self.break_off(error)

    def _note(self, reason: str) -> None:
        self.coverage.add("unsupported", f"value: {reason}")

    def _fault(self, where: str, error: Exception) -> None:
        self.coverage.add("failed", "values")
        text = "".join(traceback.format_exception(error))
        self._append({"k": "fault", "w": where, "m": text})
