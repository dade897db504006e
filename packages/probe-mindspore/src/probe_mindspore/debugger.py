"""Define `PrecisionDebugger`, by which a training script dumps what its steps compute; names and order of arguments
are msprobe's.
"""

from typing import Any, Unpack

from probe_runtime.config import Settings, StepNumbers
from probe_runtime.session import Debugger, class_or_instance

from probe_mindspore.session.session import open_session

from . import __version__


class PrecisionDebugger(Debugger):
    """Dump what a MindSpore step computes.

    Used as a context manager it is closed at the end. A second debugger with the same settings is the same object; with
    other settings it is an error until the first is closed. Every method works on the class, too.

    config_path: a config.json or YAML file.
    task, dump_path, level, step, settings: keys of the configuration (``overwrite=True``, ``list=["matmul"]``, ...: see
        spec/config.md of probe-runtime). They override the file.
    model: the model for every start() that gives none.

    Raises ConfigError with all problems at once, before anything is dumped.
    """

    def __init__(
        self,
        config_path: str | None = None,
        task: str | None = None,
        dump_path: str | None = None,
        level: str | None = None,
        step: StepNumbers | None = None,
        *,
        model: Any = None,
        **settings: Unpack[Settings],
    ) -> None:
        keys = {"task": task, "dump_path": dump_path, "level": level, "step": step, **settings}
        self._open(
            lambda config: open_session(config, f"probe-mindspore {__version__}", model),
            config_path,
            model,
            **keys,
        )

    @class_or_instance
    def start(self, model: Any = None, token_range: Any = None, rank_id: int | None = None) -> None:
        """Collect from now on, if this step and rank are selected.

        model: a Cell, or a list or tuple of Cells; needed at L0 and mix, and at L1 for the Primitives that its Cells
            hold. A later call without a model uses the same one, unless the debugger has one of its own.
        token_range: [first, last] calls of the model to collect when it generates, counted from 0.
        rank_id: the rank of this process, where no process group tells it. It holds for later calls too.
        """
        self._session.start(model, token_range, rank_id)
