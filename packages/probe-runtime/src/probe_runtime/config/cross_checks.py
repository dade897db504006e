"""Check configuration values against each other, and dump_path against what is on the disk."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from probe_format.errors import Problem
from probe_format.layout import MODES, existing_dump
from probe_format.names import ApiName, ModuleName, parsed
from probe_format.write import check_writable, explain, in_use

from .condition import Condition
from .config import Config
from .entries import LocateKey
from .keys import CALL_LEVELS


def contradictions(config: Config, locate: LocateKey) -> Iterator[Problem]:
    """Yield a problem for each combination of values that cannot be done. locate: returns where a key was given."""
    if not config.kind.values and config.level == "debug":
        yield Problem(locate("level"), f"level 'debug' saves values, and task {config.task!r} records none.",
                      'Write task "statistics" or "tensor".')  # fmt: skip
    if config.tensor_list and not config.kind.picks_files:
        yield Problem(locate("tensor_list"), f"is only for task 'statistics', and task is {config.task!r}.",
                      "Task tensor saves every recorded tensor; choose with list." if config.kind.files
                      else 'Remove it, or write task "statistics".')  # fmt: skip
    if config.on_non_finite != "record" and len(config.data_mode & {"input", "output"}) == 1:
        yield Problem(locate("on_non_finite"), "compares what goes into a call with what comes out, and data_mode "
                      "leaves one of them out.", "Remove input or output from data_mode.")  # fmt: skip
    if config.dump_enable is False and _has_no_calls(config):
        yield Problem(locate("dump_enable"), f"false has no effect at level {config.level!r}, which would dump.",
                      "Remove it, and do not call start() or save().")  # fmt: skip
    if not _has_no_calls(config):  # L2 has names of its own, debug has no scope
        yield from _conditions(config, locate)
        yield from _scope(config.scope, config.level, locate("scope"))


def _conditions(config: Config, locate: LocateKey) -> Iterator[Problem]:
    if config.then is not None and not config.when:
        yield Problem(locate("then"), "nothing makes it happen.", 'Write when as well: ["non_finite"].')
    for i, condition in enumerate(config.when):
        at = f"{locate('when')}[{i}]"
        if not config.kind.calls:
            yield from _rows_for(condition, config, at)
        elif condition.kind in ("non_finite", "norm"):
            yield from _numbers_for(condition, config, at)


def _rows_for(condition: Condition, config: Config, at: str) -> Iterator[Problem]:
    """Yield a problem where a condition looks at numbers that the rows of task `watch` do not have."""
    if condition.kind == "non_finite" and condition.subject == "backward":
        yield Problem(at, f"{condition.text!r}: task 'watch' has no numbers of the backward pass.",
                      'Write "non_finite(gradients)".')  # fmt: skip
    elif condition.kind == "non_finite" and condition.subject == "forward" and not config.list:
        yield Problem(at, f"{condition.text!r}: task 'watch' looks at what modules return where list chooses them.",
                      'Write list: ["layers."], or "non_finite(gradients)".')  # fmt: skip


def _numbers_for(condition: Condition, config: Config, at: str) -> Iterator[Problem]:
    """Yield a problem where the configuration does not record the numbers that a condition looks at."""
    what = f"{condition.text!r} looks at numbers,"
    if not config.kind.values:
        yield Problem(
            at, f"{what} and task {config.task!r} records none.", 'Write task "statistics" or "tensor".'
        )
    elif config.summary_mode == "xor":
        yield Problem(at, f"{what} and summary_mode 'xor' records none.", 'Write "statistics" or "md5".')
    elif condition.kind == "norm" and config.level == "L1":
        yield Problem(
            at, f"{what} and level 'L1' records no gradients of parameters.", 'Write "L0" or "mix".'
        )
    elif condition.kind == "norm" and "forward" in config.data_mode and "backward" not in config.data_mode:
        yield Problem(at, f"{what} and data_mode leaves gradients of parameters out.", 'Add "backward".')
    elif condition.subject == "optimizer_grad" and not config.optimizer_grad:
        yield Problem(at, f"{what} and they are not recorded.", "Set optimizer_grad: true.")


_WHOSE = {"debug": "save() was asked for each value", "L2": "the framework's own dumper writes them"}
_EXAMPLES = {
    "L0": "'Module.fc1.Linear.forward.0'",
    "L1": "'Functional.relu.0.forward'",
    "mix": "'Module.fc1.Linear.forward.0' or 'Functional.relu.0.forward'",
}


def _scope(scope: tuple[str, ...], level: str, where: str) -> Iterator[Problem]:
    if not scope:
        return
    if len(scope) != 2:
        yield Problem(where, f"has {len(scope)} name{'s' * (len(scope) > 1)}; it takes none or two.",
                      "Write the first and the last call to record: [begin, end].")  # fmt: skip
    directions = []
    for i, text in enumerate(scope):
        at = f"{where}[{i}]"
        name = _call(text)
        if name is None:
            continue  # reported by `hindrances`, as a tool may name its calls in its own way
        directions.append(name.direction)
        if (level == "L0" and isinstance(name, ApiName)) or (level == "L1" and isinstance(name, ModuleName)):
            kind = "modules" if level == "L0" else "functions"
            yield Problem(at, f"level {level} records {kind} only, so {text!r} never comes.",
                          f'Write e.g. {_EXAMPLES[level]}, or level "mix".')  # fmt: skip
    if directions == ["backward", "forward"]:
        yield Problem(where, "begins at a backward and ends at a forward, which comes first.",
                      "Swap the names, or name the same direction twice.")  # fmt: skip


def _call(text: str) -> ApiName | ModuleName | None:
    name = parsed(text)
    return name if isinstance(name, ApiName | ModuleName) else None


def _has_no_calls(config: Config) -> bool:
    return config.level not in CALL_LEVELS


def _is_set_without_calls(key: str) -> Callable[[Config], bool]:
    return lambda config: (
        _has_no_calls(config) and not any(getattr(config, key) is x for x in (None, False, ()))
    )


def _has_no_numbers(config: Config) -> bool:
    return _has_no_calls(config) or not config.kind.values or config.summary_mode == "xor"


_IS_WHOLE = "steps of level {0.level!r} are whole, and all stay, as {2}; {1} has no effect."
_IS_READ_ONCE = "at level {0.level!r} the file is not read again; {1} has no effect."
_IS_FOR_WATCH = "is for task 'watch', and task is {0.task!r}; no effect."
#: Settings that others hinder: (key, whether they do, a sentence on the configuration and the key).
_HINDRANCES: tuple[tuple[str, Callable[[Config], object], str], ...] = (
    ("async_dump", lambda c: c.async_dump and c.summary_mode != "statistics",
     "a checksum needs the bytes as they are at the call, so it is computed there (summary_mode {0.summary_mode!r}); "
     "statistics and tensor files are put off."),
    ("level", lambda c: c.level == "debug" and (c.scope or c.list or c.tensor_list),
     "at level 'debug' only save() records; scope and lists have no effect."),
    ("compiled", lambda c: c.compiled == "eager" and _has_no_calls(c),
     "at level {0.level!r} no calls are recorded; compiled has no effect."),
    *((key, _is_set_without_calls(key), _IS_WHOLE) for key in ("keep", "max_bytes", "min_free_bytes")),
    ("export", _is_set_without_calls("export"), "level {0.level!r} has no tables; export has no effect."),
    ("on_non_finite", lambda c: c.on_non_finite != "record" and _has_no_numbers(c),
     "there are no calls with numbers to look at; no effect."),
    *((key, _is_set_without_calls(key), _IS_READ_ONCE) for key in ("reload", "dump_enable")),
    ("when", _is_set_without_calls("when"), "level {0.level!r} has no conditions; when has no effect."),
    ("optimizer_grad", lambda c: c.optimizer_grad and (c.level not in ("L0", "mix") or not c.kind.values),
     "only levels 'L0' and 'mix' record gradients of parameters; no effect."),
    ("moments", lambda c: c.moments and c.kind.calls, _IS_FOR_WATCH),
    ("updates", lambda c: c.updates and c.kind.calls, _IS_FOR_WATCH),
    ("data_mode", lambda c: "all" not in c.data_mode and not c.kind.values,
     "task {0.task!r} records no values; data_mode has no effect."),
)  # fmt: skip


def hindrances(config: Config, locate: LocateKey) -> Iterator[str]:
    """Yield a sentence for each setting that is allowed but hinders another. locate: returns where a key was given."""
    for key, are_hindered, sentence in _HINDRANCES:
        if are_hindered(config):
            yield f"{locate(key)}: {sentence.format(config, key, _WHOSE.get(config.level))}"
    for i, text in enumerate(() if _has_no_calls(config) else config.scope):
        if _call(text) is None:
            at = f"{locate('scope')}[{i}]"
            yield f"{at}: {text!r} is not the full name of a call, such as {_EXAMPLES[config.level]}."


def path_problem(config: Config, rank: int | None, earlier: Callable[[], Sequence[Path]]) -> Problem | None:
    """Return what is wrong with dump_path: it cannot be written to, or holds an earlier dump that would be mixed up.

    rank: of this process; None when not distributed.
    earlier: returns the folders of such a dump.
    """
    path = config.dump_path
    try:
        if (unwritable := check_writable(path)) is not None:
            return Problem("dump_path", unwritable)
        free = config.overwrite or in_use(path, rank)  # or it is written beside the one that uses it
        found = () if free else earlier()
    except OSError as error:
        return Problem("dump_path", explain(error, path))
    return earlier_dump(path, found) if found else None


def earlier_ranks(config: Config, ranks: Iterable[int | None]) -> list[Path]:
    """Return the folders of these ranks that hold an earlier dump of the steps to be dumped, whatever its mode."""
    bases = (config.dump_path, *(config.dump_path / mode for mode in MODES))
    return [path for base in bases for rank in ranks for path in existing_dump(base, rank, config.step)]


def earlier_dump(dump_path: Path, found: Sequence[Path]) -> Problem:
    """Return the problem of a dump_path that holds the ranks of an earlier dump. found: their folders."""
    which = ", ".join(path.parent.name for path in found[:4]) + (" and more" if len(found) > 4 else "")
    return Problem(
        "dump_path",
        f"{dump_path} already holds a dump ({which}), which is left as it is.",
        "Give another dump_path, move the old one away, or set overwrite (overwrite=True as an argument).",
    )
