"""Wait for one call of one API and have its kernels dumped, forward or backward."""

from __future__ import annotations

import importlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import Factory, define, field
from probe_format.errors import FormatError, Problem
from probe_format.names import ApiName, parse_name
from probe_format.suggest import nearest
from probe_runtime.notice import notice

from .npu import NpuDumper
from .replay import backward, differentiable, replayed

__all__ = ["ApiWatch", "parse_api"]


def parse_api(text: Any, where: str) -> ApiName | Problem:
    """Parse the name of a call, ``Functional.linear.0.backward``; return it, or its problem."""
    try:
        name = parse_name(text) if isinstance(text, str) else None
        why = (
            "is not the name of a call" if name is None else "is no API: kernels are dumped for one API call"
        )
    except FormatError:
        name, why = None, "is not the full name of a call"
    if isinstance(name, ApiName):
        return name
    example = 'Write a name from a dump.json of level L1, e.g. "Functional.linear.0.backward".'
    return Problem(where, f"{text!r} {why}.", example)


class _Thread(threading.local):
    inside = 0


@define(eq=False)
class ApiWatch:
    """Watch for one call during one step, and dump it.

    config: the ACL file.
    state: "waiting", "called" (a backward whose gradient has not come), "dumped" or "failed".
    on: whether calls are counted and looked at; a gradient is waited for in any case.
    seen: calls so far, by API.
    """

    name: ApiName
    config: Path
    dumper: NpuDumper
    state: str = "waiting"
    on: bool = True
    over: bool = False
    seen: Counter[str] = Factory(Counter)
    why: str = ""
    _local: _Thread = field(factory=_Thread)
    _lock: Any = field(factory=threading.Lock)
    _handle: Any = None

    def api(
        self,
        key: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        composite: bool = False,
    ) -> Any:
        """Run ``original`` and return its result; dump it where it is the call.

        key: the API, ``Functional.linear``.
        composite: whether calls inside it count. Calls inside other APIs do not, as in the names of level L1.
        """
        local = self._local
        if local.inside or not self.on:
            return original(*args, **kwargs)
        with self._lock:
            number = self.seen[key]
            self.seen[key] += 1
        mine = (
            self.state == "waiting"
            and key == f"{self.name.prefix}.{self.name.api}"
            and number == self.name.count
        )
        local.inside += 1
        try:
            if mine and self.name.direction == "forward":
                return self._forward(original, args, kwargs)
            replay = self._replay(original, args, kwargs) if mine else None
            local.inside -= composite
            try:
                out = original(*args, **kwargs)
            finally:
                local.inside += composite
            if replay is not None:
                self._await_gradient(*replay, out)
            return out
        finally:
            local.inside -= 1

    def close(self) -> str:
        """End the watch, and return one sentence about its result."""
        self.on, self.over = False, True
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        return self.describe()

    def describe(self) -> str:
        """Return the result so far, in one sentence."""
        if self.state == "dumped":
            return f"the kernels of {self.name} are dumped in {self.config.parent}"
        if self.state == "failed":
            return f"the kernels of {self.name} are not dumped: {self.why}"
        if self.state == "called":
            return f"{self.name} ran forward, but no gradient came back to it, so its backward kernels are not dumped"
        key = f"{self.name.prefix}.{self.name.api}"
        times = self.seen[key]
        if times:
            return f"{self.name} is not dumped: {key} was called {times} times, so its numbers end at {times - 1}"
        near = nearest(key, self.seen, 3, 0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return f"{self.name} is not dumped: {key} was never called{hint}"

    # -- inside ---------------------------------------------------------------------------------------

    def _forward(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the user's call once, with the dumper on where it can be switched on."""
        ran, out, raised = False, None, None
        try:
            with self.dumper.dumping(self.config):
                ran = True
                try:
                    out = original(*args, **kwargs)
                    self.state = "dumped"
                except BaseException as e:
                    self.state, self.why = "failed", f"the call raised {type(e).__name__}"
                    raised = e
        except Exception as e:
            self._fault(e)
        if raised is not None:
            raise raised
        return out if ran else original(*args, **kwargs)

    def _replay(
        self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], list[Any]] | None:
        api = self.name.api
        in_place = (api.endswith("_") and not api.endswith("__")) or api.startswith("__i")
        try:
            with self.dumper.same_random():
                return replayed(original, args, kwargs, in_place=in_place)
        except Exception as e:
            self._fault(e)
            return None

    def _await_gradient(self, inputs: list[Any], outputs: list[Any], out: Any) -> None:
        try:
            torch = importlib.import_module("torch")
            tensors = differentiable(out)
            if not tensors or len(tensors) != len(outputs) or not inputs:
                raise ValueError("no input or output of this call has a gradient")
            self.state = "called"

            def arrived(gradients: Any) -> None:
                if not self.over and self.state == "called":
                    self._backward(inputs, outputs, gradients)

            self._handle = torch.autograd.graph.register_multi_grad_hook(tensors, arrived)
        except Exception as e:
            self._fault(e)

    def _backward(self, inputs: list[Any], outputs: list[Any], gradients: Any) -> None:
        self._local.inside += 1
        try:
            with self.dumper.dumping(self.config):
                backward(inputs, outputs, [None if g is None else g.detach() for g in gradients])
            self.state = "dumped"
        except Exception as e:
            self._fault(e)
        finally:
            self._local.inside -= 1

    def _fault(self, error: BaseException) -> None:
        """Record and report a fault of the dump, which never ends the run."""
        self.state, self.why = "failed", f"{type(error).__name__}: {error}"
        notice(f"Probe: {self.describe()}")
