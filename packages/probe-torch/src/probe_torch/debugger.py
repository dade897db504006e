"""`PrecisionDebugger`: what a training script calls. The names and their order are msprobe's."""

from __future__ import annotations

import atexit
from types import TracebackType
from typing import Any

from probe_format.config import load, resolve
from probe_format.errors import UsageError
from probe_format.session import Session
from probe_format.single import AnySession, EitherWay, reusable
from torch import nn

from . import __version__
from .modules import Model
from .session import open_session

__all__ = ["PrecisionDebugger"]


class PrecisionDebugger:
    """Dumps what a PyTorch step computes.

    config_path: a config.json or YAML file (docs/config.md of probe-format). task, dump_path, level and step
    win over the file. model: the model for every start() that gives none. Raises ConfigError with every
    problem at once, before anything is dumped.

    Used as a context manager it is closed at the end. A second debugger with the same settings is the same
    one; with other settings it is an error until the first is closed.
    """

    _current: AnySession | None = None

    def __init__(
        self,
        config_path: str | None = None,
        task: str | None = None,
        dump_path: str | None = None,
        level: str | None = None,
        model: Model | None = None,
        step: Any = None,
    ) -> None:
        file = None if config_path is None else load(config_path)
        config = resolve(file, task=task, dump_path=dump_path, level=level, step=step)
        session = reusable(PrecisionDebugger._current, config, model)
        if session is None:
            session = open_session(config, model, f"probe-torch {__version__}")
        self._session = PrecisionDebugger._current = session

    @classmethod
    def current(cls) -> PrecisionDebugger:
        """The debugger of this process. Raises UsageError when there is none."""
        session = cls._current
        if session is None or session.closed:
            raise UsageError(
                "There is no PrecisionDebugger yet. Make one first: PrecisionDebugger(config_path=...)."
            )
        found = cls.__new__(cls)
        found._session = session
        return found

    @EitherWay
    def start(self, model: Model | None = None, token_range: Any = None) -> None:
        """Collect from here on, if this step and rank are wanted.

        model: a module or a list of modules; needed at L0 and mix. token_range: [first, last] calls of the
        model to collect when it generates, counted from 0.
        """
        self._session.start(model, token_range)

    @EitherWay
    def stop(self) -> None:
        """Stop collecting and write the files; gradients until step() are still taken."""
        self._session.stop()

    @EitherWay
    def step(self) -> None:
        """The training step is over: its dump is complete, the next one begins."""
        self._session.step()

    @EitherWay
    def forward_backward_dump_end(self) -> None:
        """The same as stop(), under its old name."""
        self._session.stop()

    @EitherWay
    def save(self, variable: Any, name: str, save_backward: bool = True) -> Any:
        """At level "debug": save a value, and its gradient, as ``{name}.{n}.debug``; gives the value back.

        variable: a tensor, array, number or text, or lists, tuples and dicts of these.
        """
        return self._session.save(variable, name, save_backward)

    @EitherWay
    def set_init_step(self, step: int) -> None:
        """Number the steps from ``step``; before the loop."""
        self._session.set_init_step(step)

    @EitherWay
    def register_custom_api(self, module: Any, api_name: str, api_prefix: str | None = None) -> None:
        """Also record ``module.api_name`` at L1 and mix, as ``{api_prefix}.{api_name}.{n}.forward``."""
        self._session.patches.add(module, api_name, api_prefix)

    @EitherWay
    def restore_custom_api(self, module: Any, api_name: str) -> None:
        """Undo `register_custom_api`."""
        self._session.patches.remove(module, api_name)

    @EitherWay
    def module_dump(self, module: Any, name: str) -> None:
        """Record ``module`` as ``Module.{name}.{class}`` and nothing inside it, until `module_dump_end`."""
        if not isinstance(module, nn.Module):
            raise UsageError(f"module_dump wants a torch.nn.Module; got a {type(module).__name__}.")
        self._calls("module_dump").module_dump(module, name)

    @EitherWay
    def module_dump_end(self) -> None:
        """End `module_dump`."""
        self._calls("module_dump_end").module_dump_end()

    def _calls(self, what: str) -> Session:
        """The session, at a level that records calls."""
        if not isinstance(self._session, Session):
            raise UsageError(
                f"{what} is for levels L0 and mix; this debugger's is {self._session.config.level}."
            )
        return self._session

    @EitherWay
    def close(self) -> None:
        """Complete the open step and let go of torch; also done at exit."""
        self._session.close()

    def __enter__(self) -> PrecisionDebugger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()


@atexit.register
def _at_exit() -> None:
    session = PrecisionDebugger._current
    if session is not None:
        session.close()
