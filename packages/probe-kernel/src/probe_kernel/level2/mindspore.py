"""Implement level L2 for the sessions of probe-mindspore: translate and check the debugger's configuration, and open
MindSpore's own kernel dump for the whole run.
"""

from contextlib import ExitStack

from attrs import define, field
from probe_format.errors import ConfigError, Problem
from probe_runtime.config import Config, compact

from probe_kernel.control.backends import backend_named
from probe_kernel.control.description import KernelDump
from probe_kernel.control.mindspore_run import KernelRun
from probe_kernel.control.option_rules import check, renamed
from probe_kernel.control.readiness import find_backend
from probe_kernel.mindspore import dump


def common_problems(config: Config) -> list[Problem]:
    """Return the keys that have no meaning at level L2, whatever the framework."""
    what = "is not for level L2."
    remedies = {"scope": "and choose with list.", "tensor_list": 'and write task "tensor".'}
    return [Problem(k, what, f"Leave it empty, {v}") for k, v in remedies.items() if getattr(config, k)]


def description_of(config: Config, backend: str) -> KernelDump:
    """Return the kernel dump that a configuration describes, without rank: the session starts on wanted ranks only.

    backend: a name of BACKENDS.
    """
    statistics = config.kind.picks_files
    sums: tuple[str, ...] = ("md5",) if config.summary_mode == "md5" else ("max", "min", "avg", "l2norm")
    if config.statistic_category:  # msprobe calls the average mean
        sums = tuple("avg" if name == "mean" else name for name in config.statistic_category)
    chosen = backend_named(backend)
    device = statistics and config.device == "device" and chosen.knows("stat_calc_mode")
    return KernelDump(
        path=str(config.dump_path),
        iterations=[n if isinstance(n, int) else str(n) for n in compact(config.step)] or "all",
        kernels=config.list,
        inputs="output" not in config.data_mode or "input" in config.data_mode,
        outputs="input" not in config.data_mode or "output" in config.data_mode,
        saved_data="statistic" if statistics else "tensor",
        statistic_category=sums if statistics else None,
        file_format=config.file_format if chosen.knows("file_format") else None,
        stat_calc_mode="device" if device else None,
        device_stat_precision_mode=config.precision if device else None,
        synchronous=False if config.async_dump else None,
    )


# Option of the description -> key of the configuration, under which a problem is reported, and what to write there.
_NAMES = {
    "path": ("dump_path", ""), "iterations": ("step", ""), "kernels": ("list", ""), "inputs": ("data_mode", ""),
    "outputs": ("data_mode", ""), "saved_data": ("task", 'Write task "tensor".'),
    "statistic_category": ("summary_mode", ""), "synchronous": ("async_dump", "Set async_dump to false."),
    "stat_calc_mode": ("device", ""), "device_stat_precision_mode": ("precision", ""),
}  # fmt: skip


def mindspore_problems(config: Config, backend: str | None = None) -> list[Problem]:
    """Return every problem of this configuration at level L2, named by the configuration's keys.

    backend: a name of BACKENDS; found from MindSpore's context when None.
    """
    backend = backend or find_backend()
    found = common_problems(config)
    if config.data_mode & {"forward", "backward"}:
        what = "kernels are of a graph, which has no forward and backward half."
        found.append(Problem("data_mode", what, 'Write ["all"], ["input"] or ["output"].'))
    if not config.kind.values:
        found.append(
            Problem("task", f"{config.task!r} records no values.", 'Write "tensor" or "statistics".')
        )
    if config.summary_mode == "xor" and config.kind.picks_files:
        found.append(Problem("summary_mode", "MindSpore has no 'xor'.", 'Write "statistics" or "md5".'))
    problems = check(description_of(config, backend), backend_named(backend))[1]
    return [*found, *(renamed(problem, _NAMES) for problem in problems)]


def mindspore_notes(config: Config, backend: str | None = None) -> tuple[str, ...]:
    """Return what in this configuration has no effect at level L2, in sentences.

    backend: a name of BACKENDS; found from MindSpore's context when None.
    """
    chosen = backend_named(backend or find_backend())
    found = []
    statistics = config.kind.picks_files
    if config.device == "device" and not (statistics and chosen.knows("stat_calc_mode")):
        why = f"{chosen.title} computes statistics on the host" if statistics else f"task is {config.task!r}"
        found.append(f"device: 'device' has no effect: {why}.")
    if config.file_format == "bin" and not chosen.knows("file_format"):
        found.append(f"file_format: 'bin' has no effect: {chosen.title} always writes npy files.")
    if config.statistic_category and not statistics:
        found.append(f"summary_mode: has no effect: task is {config.task!r}.")
    return tuple(found)


@define(eq=False)
class MindSporeKernels:
    """Dump the kernels of one run: prepare() opens the dump, once in a process, and close() ends it."""

    config: Config
    run: KernelRun | None = None
    _stack: ExitStack = field(factory=ExitStack)

    def prepare(self, step: int = 0) -> None:
        """Open the dump, before the first graph is compiled.

        step: the number of the next iteration. The dumper itself keeps to the steps of the configuration.
        Raises ConfigError when an option is wrong, UsageError when a graph was compiled already.
        """
        if self.run is not None:
            return
        backend = find_backend()
        if problems := mindspore_problems(self.config, backend):
            raise ConfigError(problems)
        described = description_of(self.config, backend)
        self.run = self._stack.enter_context(dump(described, backend=backend, manual_steps=True))
        if step:
            self.run.first_iteration(step)
        self.run.stop()

    def start(self, step: int = 0) -> None:
        """Begin or resume dumping.

        step: the number of the next iteration, where `prepare` was not called before.
        """
        self.prepare(step)
        if self.run is not None:
            self.run.start()

    def stop(self) -> None:
        """Stop until start(), on backends that can."""
        if self.run is not None:
            self.run.stop()

    def step(self) -> None:
        """Count one step on."""
        if self.run is not None:
            self.run.step()

    def close(self) -> None:
        """End the dump, and report what was written. Further calls do nothing."""
        self._stack.close()
