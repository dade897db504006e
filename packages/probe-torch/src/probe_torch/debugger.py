"""`PrecisionDebugger`: what a training script calls. The names and their order are msprobe's."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from probe_format.config import load, resolve
from probe_format.errors import UsageError

from . import __version__
from .modules import Model
from .session import Session

__all__ = ["PrecisionDebugger"]

P = ParamSpec("P")
R = TypeVar("R")


class _EitherWay(Generic[P, R]):
    """A method that also works on the class, where it acts on the current instance."""

    def __init__(self, function: Callable[Concatenate[PrecisionDebugger, P], R]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: PrecisionDebugger | None, owner: type[PrecisionDebugger]) -> Callable[P, R]:
        if instance is None:
            instance = owner.current()
        return functools.partial(self._function, instance)


class PrecisionDebugger:
    """Dumps what a PyTorch step computes.

    config_path: a config.json or YAML file (docs/config.md of probe-format). task, dump_path, level and step
    win over the file. model: the model for every start() that gives none. Raises ConfigError with every
    problem at once, before anything is dumped.

    Used as a context manager it is closed at the end. A second debugger with the same settings is the same
    one; with other settings it is an error until the first is closed.
    """

    _current: Session | None = None

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
        existing = PrecisionDebugger._current
        if existing is not None and not existing.closed:
            if existing.config != config or (model is not None and existing.model is not model):
                raise UsageError(
                    f"This process has a PrecisionDebugger already ({_brief(existing)}), and this one differs "
                    f"({_differences(existing.config, config)}). One at a time: close() the first."
                )
            self._session = existing
            return
        self._session = PrecisionDebugger._current = Session.create(
            config, model, f"probe-torch {__version__}"
        )

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

    @_EitherWay
    def start(self, model: Model | None = None, token_range: Any = None) -> None:
        """Collect from here on, if this step and rank are wanted.

        model: a module or a list of modules; needed at L0 and mix. token_range: [first, last] calls of the
        model to collect when it generates, counted from 0.
        """
        self._session.start(model, token_range)

    @_EitherWay
    def stop(self) -> None:
        """Stop collecting and write the files; gradients until step() are still taken."""
        self._session.stop()

    @_EitherWay
    def step(self) -> None:
        """The training step is over: its dump is complete, the next one begins."""
        self._session.step()

    @_EitherWay
    def forward_backward_dump_end(self) -> None:
        """The same as stop(), under its old name."""
        self._session.stop()

    @_EitherWay
    def set_init_step(self, step: int) -> None:
        """Number the steps from ``step``; before the loop."""
        self._session.set_init_step(step)

    @_EitherWay
    def register_custom_api(self, module: Any, api_name: str, api_prefix: str | None = None) -> None:
        """Also record ``module.api_name`` at L1 and mix, as ``{api_prefix}.{api_name}.{n}.forward``."""
        self._session.patches.add(module, api_name, api_prefix)

    @_EitherWay
    def restore_custom_api(self, module: Any, api_name: str) -> None:
        """Undo `register_custom_api`."""
        self._session.patches.remove(module, api_name)

    @_EitherWay
    def module_dump(self, module: Any, name: str) -> None:
        """Record ``module`` as ``Module.{name}.{class}`` and nothing inside it, until `module_dump_end`."""
        self._session.module_dump(module, name)

    @_EitherWay
    def module_dump_end(self) -> None:
        """End `module_dump`."""
        self._session.module_dump_end()

    @_EitherWay
    def close(self) -> None:
        """Complete the open step and let go of torch; also done at exit."""
        self._session.close()

    def __enter__(self) -> PrecisionDebugger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()


def _brief(session: Session) -> str:
    c = session.config
    return f"level {c.level}, task {c.task}, dump_path {c.dump_path}"


def _differences(a: Any, b: Any) -> str:
    names = [n for n in a.__attrs_attrs__ if n.eq]
    changed = [n.name for n in names if getattr(a, n.name) != getattr(b, n.name)]
    return (
        ", ".join(f"{n}: {getattr(a, n)!r} there, {getattr(b, n)!r} here" for n in changed[:4]) or "its model"
    )


@atexit.register
def _at_exit() -> None:
    session = PrecisionDebugger._current
    if session is not None:
        session.close()
