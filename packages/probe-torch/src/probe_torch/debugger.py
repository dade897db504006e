"""Define `PrecisionDebugger`, with which a training script dumps what its steps compute; names and order of arguments
are msprobe's."""

from typing import Any, Unpack

from probe_format.errors import UsageError
from probe_runtime.config import Settings, StepNumbers
from probe_runtime.notice import notice
from probe_runtime.session import Debugger, Session, class_or_instance
from torch import nn

from probe_torch.hooks.modules import Model
from probe_torch.session.session import open_session

from . import __version__


class PrecisionDebugger(Debugger):
    """Dump what a PyTorch step computes.

    config_path: a config.json or YAML file.
    model: the model for every start() that gives none.
    task, dump_path, level, step, settings: keys of the configuration (``overwrite=True``, ``list=["linear"]``, ...: see
        spec/config.md of probe-runtime). They override the file.

    Raises ConfigError with every problem at once, before anything is dumped.

    Used as a context manager it is closed at the end. A second debugger with the same settings is the same
    one; with other settings it is an error until the first is closed. Every method works on the class, too.
    """

    def __init__(
        self,
        config_path: str | None = None,
        task: str | None = None,
        dump_path: str | None = None,
        level: str | None = None,
        model: Model | None = None,
        step: StepNumbers | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        keys = {"task": task, "dump_path": dump_path, "level": level, "step": step, **settings}
        self._open(
            lambda config: open_session(config, model, f"probe-torch {__version__}"),
            config_path,
            model,
            **keys,
        )

    @class_or_instance
    def start(
        self,
        model: Model | None = None,
        token_range: Any = None,
        rank_id: int | None = None,
        scheduled_tokens: Any = None,
    ) -> None:
        """Collect from here on, if this step and rank are wanted.

        model: a module or a list of modules; needed at L0 and mix. A later call without a model uses the same one,
            unless the debugger has one of its own.
        token_range: [first, last] calls of the model to collect when it generates, counted from 0.
        rank_id: the rank of this process, where no process group tells it. It holds for later calls too.
        scheduled_tokens: without effect, and a warning says so: `label` tells requests apart.
        """
        if scheduled_tokens is not None:
            notice(
                "Probe: start(scheduled_tokens=...) has no effect: token_range chooses tokens, and debugger.label(...) "
                "tells requests apart."
            )
        self._session.start(model, token_range, rank_id)

    @class_or_instance
    def module_dump(self, module: Any, name: str) -> None:
        """Record ``module`` as ``Module.{name}.{class}`` and nothing inside it, until `module_dump_end`."""
        if not isinstance(module, nn.Module):
            raise UsageError(f"module_dump wants a torch.nn.Module; got a {type(module).__name__}.")
        self._calls("module_dump").module_dump(module, name)

    @class_or_instance
    def module_dump_end(self) -> None:
        """End `module_dump`."""
        self._calls("module_dump_end").module_dump_end()

    def _calls(self, what: str) -> Session:
        """Return the session. Raises UsageError when the level records no calls."""
        if not isinstance(self._session, Session):
            raise UsageError(
                f"{what} is for levels L0 and mix; this debugger's is {self._session.config.level}."
            )
        return self._session
