"""Wait for one call of one API and have its kernels dumped, forward or backward."""

import importlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from attrs import Factory, define, field
from probe_format.errors import FormatError, Problem
from probe_format.names import ApiName, parse_name
from probe_format.suggest import nearest
from probe_runtime.notice import log, notice

from .acl import dumping, same_random
from .replay import Call, Kwargs, Replay, differentiable, replayed


def parse_api(text: Any, where: str) -> ApiName | Problem:
    """Parse the name of a call, ``Functional.linear.0.backward``; return it, or its problem."""
    why = "is not the full name of a call"
    with suppress(FormatError):
        name = parse_name(str(text))
        if isinstance(name, ApiName):
            return name
        why = "is no API: kernels are dumped for one API call"
    example = 'Write a name from a dump.json of level L1, e.g. "Functional.linear.0.backward".'
    return Problem(where, f"{text!r} {why}.", example)


class _InCall(threading.local):
    inside = 0


@define(eq=False)
class ApiWatch:
    """Watch for one call during one step, and dump it.

    name: the call to dump.
    config: the ACL file for it.
    npu: what dumps it (`acl.dumping`).
    state: "waiting", "called" (a backward whose gradient has not come), "dumped" or "failed".
    on: whether calls are looked at now.
    over: whether the watch has ended, and no gradient is waited for any more.
    seen: calls so far, by API.
    why: why the dump failed.
    """

    name: ApiName
    config: Path
    npu: Any
    state: str = "waiting"
    on: bool = True
    over: bool = False
    seen: Counter[str] = Factory(Counter)
    why: str = ""
    _local: _InCall = field(factory=_InCall)
    _lock: Any = field(factory=threading.RLock)
    _handle: Any = None

    def api(
        self, key: str, original: Call, args: tuple[Any, ...], kwargs: Kwargs, *, composite: bool = False
    ) -> Any:
        """Run ``original`` and return its result; dump its kernels where it is the call to dump.

        key: the API, ``Functional.linear``.
        composite: whether calls inside it count. Calls inside other APIs do not, as in the names of level L1.
        """
        local = self._local
        if local.inside or not self.on:
            return original(*args, **kwargs)
        with self._lock:
            number = self.seen[key]
            self.seen[key] += 1
        mine = self.state == "waiting" and key == self._key and number == self.name.count
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
                with self._harmless():
                    self._await_gradient(replay, out)
            return out
        finally:
            local.inside -= 1

    def close(self, *, quiet: bool = False) -> None:
        """End the watch, and report its result in one sentence. quiet: in the log only."""
        self.on, self.over = False, True
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        report = self.describe()
        log("probe_kernel", report)
        if self.state not in ("dumped", "failed") and not quiet:  # a failure was reported when it happened
            notice(f"Probe: {report}")

    def describe(self) -> str:
        if self.state == "dumped":
            return f"the kernels of {self.name} are dumped in {self.config.parent}"
        if self.state == "failed":
            return f"the kernels of {self.name} are not dumped: {self.why}"
        if self.state == "called":
            return f"{self.name} ran forward, but no gradient came back to it, so its backward kernels are not dumped"
        key, times = self._key, self.seen[self._key]
        if times:
            return f"{self.name} is not dumped: {key} was called {times} times, so its numbers end at {times - 1}"
        near = nearest(key, self.seen, 3, 0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return f"{self.name} is not dumped: {key} was never called{hint}"

    # -- inside ---------------------------------------------------------------------------------------

    @property
    def _key(self) -> str:
        return f"{self.name.prefix}.{self.name.api}"

    def _forward(self, original: Call, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        """Run the user's call once, with the dumper on where it can be switched on."""
        block = ExitStack()
        with self._harmless():
            block.enter_context(dumping(self.npu, self.config))
            self.state = "dumped"
        try:
            return original(*args, **kwargs)
        except BaseException as e:
            if self.state == "dumped":
                self.state, self.why = "failed", f"the call raised {type(e).__name__}"
            raise
        finally:
            with self._harmless():
                block.close()

    def _replay(self, original: Call, args: tuple[Any, ...], kwargs: Kwargs) -> Replay | None:
        api = self.name.api
        in_place = (api.endswith("_") and not api.endswith("__")) or api.startswith("__i")
        with self._harmless(), same_random(self.npu):
            return replayed(original, args, kwargs, in_place=in_place)
        return None

    def _await_gradient(self, replay: Replay, out: Any) -> None:
        tensors = differentiable(out)
        if not tensors or len(tensors) != len(replay.outputs) or not replay.inputs:
            raise ValueError("no input or output of this call has a gradient")
        self.state = "called"

        def arrived(gradients: Any) -> None:
            if not self.over and self.state == "called":
                self._backward(replay, gradients)

        graph = importlib.import_module("torch").autograd.graph
        self._handle = graph.register_multi_grad_hook(tensors, arrived)

    def _backward(self, replay: Replay, gradients: Any) -> None:
        self._local.inside += 1
        with self._harmless():
            with dumping(self.npu, self.config):
                replay.backward([None if g is None else g.detach() for g in gradients])
            self.state = "dumped"
        self._local.inside -= 1

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """Record and report a fault of the dump, which never ends the run."""
        try:
            yield
        except Exception as error:
            self.state, self.why = "failed", f"{type(error).__name__}: {error}"
            notice(f"Probe: {self.describe()}")
