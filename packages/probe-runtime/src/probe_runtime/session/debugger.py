"""Provide the base of every framework's `PrecisionDebugger`: msprobe's methods on the session of a process."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self

from probe_format.errors import UsageError

from probe_runtime.collect.work_label import WorkLabel
from probe_runtime.config.config import Config
from probe_runtime.config.keys import CALL_LEVELS
from probe_runtime.config.source import ConfigSource
from probe_runtime.notice import notice

from .any_session import AnySession
from .current import class_or_instance, one_at_a_time
from .one_step import OneStep
from .reload import Reload
from .session import Session


class Debugger:
    """The debugger of a process. Every method also works on the class, where it acts on the current debugger.

    As a context manager it is closed at the end of the block, else at exit.
    """

    gives_way: ClassVar[Callable[[str], None] | None] = None
    """Ends the session that `probe run` or the job has opened, when the script opens one; takes the reason."""
    _current: ClassVar[AnySession | None] = None
    _kind: ClassVar[type[Debugger]]  # the framework's class; a user's subclass shares its current session
    _session: AnySession

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if Debugger in cls.__bases__:
            cls._kind = cls
            atexit.register(cls._at_exit)

    def _open(
        self,
        open_session: Callable[[Config], AnySession],
        config_path: str | None,
        model: Any,
        **overrides: Any,
    ) -> None:
        """Use the session that is open with these settings, else open one.

        open_session: makes a session of a configuration.
        overrides: keys that win over the file; None where not given.

        Raises ConfigError with every problem, and UsageError when a session with other settings is open.
        """
        source, current = ConfigSource(config_path, overrides), self._kind._current
        followed = isinstance(current, Session) and current.follows(source)  # it may have read the file again
        config = current.config if followed and current is not None else source.read()
        if (give_way := Debugger.gives_way) is not None:
            Debugger.gives_way = None
            give_way("the script has a PrecisionDebugger of its own, which dumps from here on")
        session = self._kind._current
        if session is None or session.closed:
            session = open_session(config)
            if isinstance(session, Session) and (config.reload or config.dump_enable is not None):
                session.reload = Reload(source)
        elif session.config != config or (model is not None and session.model is not model):
            raise one_at_a_time(session.config, config)
        self._session = self._kind._current = session

    @classmethod
    def current(cls) -> Self:
        """Return the debugger of this process. Raises UsageError when there is none yet, or it is closed."""
        session, name = cls._current, cls.__name__
        if session is None:
            raise UsageError(f"There is no {name} yet. Make one first: {name}(config_path=...).")
        if session.closed:
            raise UsageError(f"The {name} of this process is closed. Make another: {name}(config_path=...).")
        found = cls.__new__(cls)
        found._session = session
        return found

    @property
    def session(self) -> AnySession:
        """Return the session that the debugger's calls go to."""
        return self._session

    @class_or_instance
    def stop(self) -> None:
        """Stop collecting and write the files. Gradients that arrive before step() are still recorded."""
        self._session.stop()

    @class_or_instance
    def step(self) -> None:
        """End the training step: complete its dump, and begin the next step."""
        self._session.step()

    @class_or_instance
    def one_step(self, model: Any = None) -> OneStep:
        """Make the block one training step: start(model), and stop() and step() at its end, also where it raises.

        As a decorator it makes each call of a function one step.
        """
        return OneStep(self._session, model)

    @class_or_instance
    def label(self, text: str | None) -> WorkLabel:
        """Label the calls of this thread, or of this asyncio task, from here on, such as by the request they serve.

        Each record has it, and the header lists them. As a context manager it holds until the end of the block.

        text: the label, None for none.
        """
        if (level := self._session.config.level) not in CALL_LEVELS:
            notice(f"Probe: label() has no effect at level {level}: it is for the calls of L0, L1 and mix.")
        return WorkLabel(text)

    @class_or_instance
    def forward_backward_dump_end(self) -> None:
        """Do the same as stop(), under msprobe's older name."""
        self._session.stop()

    @class_or_instance
    def save(self, variable: Any, name: str, save_backward: bool = True) -> Any:
        """Save a value, and its gradient, as ``{name}.{n}.debug`` at level "debug". Return the value.

        variable: a tensor or array of any shape, a number or text, or lists, tuples and dicts of these.
        name: the name of the value.
        save_backward: whether its gradient is saved.
        """
        return self._session.save(variable, name, save_backward)

    @partial(class_or_instance, idle=lambda name, value: None)
    def observe(self, name: str, value: Any) -> None:
        """Take a value of the run, for `when`: ``observe("loss", loss)``. Without a condition on it, it is not read.

        name: of the value.
        value: a number, or a tensor of one element; on a device the run waits for it.
        """
        self._session.observe(name, value)

    @class_or_instance
    def set_init_step(self, step: int) -> None:
        """Number the steps from ``step``. Call it before the training loop."""
        self._session.set_init_step(step)

    @class_or_instance
    def register_custom_api(self, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Also record ``module.api`` at L1 and mix, as ``{api_prefix}.{api}.{n}.forward``. api: its name."""
        self._session.patches.add(module, api, api_prefix)

    @class_or_instance
    def restore_custom_api(self, module: Any, api: str) -> None:
        """Undo `register_custom_api`."""
        self._session.patches.remove(module, api)

    @partial(class_or_instance, idle=lambda: None)
    def close(self) -> None:
        """Complete the open step and remove every hook. Also done at exit; nothing is done where none is open."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._session.close()

    @classmethod
    def _at_exit(cls) -> None:
        if cls._current is not None:
            cls._current.close()
