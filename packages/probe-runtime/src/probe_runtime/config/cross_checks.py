"""Check configuration values against each other, and dump_path against what is on the disk."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from probe_format.errors import FormatError, Problem
from probe_format.names import ApiName, ModuleName, parse_name

from .condition import Condition
from .config import Config
from .entries import LocateKey


def contradictions(config: Config, locate: LocateKey) -> Iterator[Problem]:
    """Yield a problem for each combination of values that cannot be done. locate: returns where a key was given."""
    if config.task == "structure" and config.level == "debug":
        yield Problem(locate("level"), "level 'debug' saves values, and task 'structure' records none.",
                      'Write task "statistics" or "tensor".')  # fmt: skip
    if config.tensor_list and config.task != "statistics":
        yield Problem(locate("tensor_list"), f"is only for task 'statistics', and task is {config.task!r}.",
                      "Task tensor saves every recorded tensor; choose with list." if config.task == "tensor"
                      else 'Remove it, or write task "statistics".')  # fmt: skip
    if config.on_non_finite != "record" and len(config.data_mode & {"input", "output"}) == 1:
        yield Problem(locate("on_non_finite"), "compares what goes into a call with what comes out, and data_mode "
                      "leaves one of them out.", "Remove input or output from data_mode.")  # fmt: skip
    if config.dump_enable is False and config.level not in _EXAMPLES:
        yield Problem(locate("dump_enable"), f"false has no effect at level {config.level!r}, which would dump.",
                      "Remove it, and do not call start() or save().")  # fmt: skip
    if config.level in _EXAMPLES:  # L2 has names of its own, debug has no scope
        yield from _conditions(config, locate)
        yield from _scope(config.scope, config.level, locate("scope"))


def _conditions(config: Config, locate: LocateKey) -> Iterator[Problem]:
    if config.then is not None and not config.when:
        yield Problem(locate("then"), "nothing makes it happen.", 'Write when as well: ["non_finite"].')
    if config.when and config.task == "watch":
        yield Problem(locate("when"), "judges steps that are dumped, and task 'watch' dumps none.",
                      'Write task "statistics", and keep.')  # fmt: skip
        return
    for i, condition in enumerate(config.when):
        if condition.kind in ("non_finite", "norm"):
            yield from _numbers_for(condition, config, f"{locate('when')}[{i}]")


def _numbers_for(condition: Condition, config: Config, at: str) -> Iterator[Problem]:
    """Yield what keeps a configuration from recording the numbers that a condition looks at."""
    what = f"{condition.text!r} looks at numbers,"
    if config.task == "structure":
        yield Problem(
            at, f"{what} and task 'structure' records none.", 'Write task "statistics" or "tensor".'
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
    try:
        name = parse_name(text)
    except FormatError:
        return None
    return name if isinstance(name, ApiName | ModuleName) else None


def hindrances(config: Config, locate: LocateKey) -> Iterator[str]:
    """Yield a sentence for each setting that is allowed but hinders another. locate: returns where a key was given."""
    if config.async_dump and config.summary_mode != "statistics":
        yield (
            f"{locate('async_dump')}: a checksum needs the bytes as they are at the call, so it is computed "
            f"there (summary_mode {config.summary_mode!r}); statistics and tensor files are put off."
        )
    for i, text in enumerate(config.scope if config.level in _EXAMPLES else ()):
        if _call(text) is None:
            at = f"{locate('scope')}[{i}]"
            yield f"{at}: {text!r} is not the full name of a call, such as {_EXAMPLES[config.level]}."
    if config.level == "debug" and (config.scope or config.list or config.tensor_list):
        yield f"{locate('level')}: at level 'debug' only save() records; scope and lists have no effect."
    if config.compiled == "eager" and config.level not in _EXAMPLES:
        yield f"{locate('compiled')}: at level {config.level!r} no calls are recorded; compiled has no effect."
    for key in ("keep", "max_bytes", "min_free_bytes"):
        if getattr(config, key) is not None and config.level not in _EXAMPLES:
            yield f"{locate(key)}: steps of level {config.level!r} are whole, and all stay; {key} has no effect."
    if config.on_non_finite != "record":
        has_numbers = config.task != "structure" and config.summary_mode != "xor"
        if config.level not in _EXAMPLES or not has_numbers:
            yield f"{locate('on_non_finite')}: there are no calls with numbers to look at; no effect."
    for key in ("reload", "dump_enable"):
        if getattr(config, key) and config.level not in _EXAMPLES:
            yield f"{locate(key)}: at level {config.level!r} the file is not read again; {key} has no effect."
    if config.when and config.level not in _EXAMPLES:
        yield f"{locate('when')}: level {config.level!r} has no conditions; when has no effect."
    if config.optimizer_grad and (config.level not in ("L0", "mix") or config.task == "structure"):
        yield f"{locate('optimizer_grad')}: only levels 'L0' and 'mix' record gradients of parameters; no effect."
    for name in ("moments", "updates"):
        if getattr(config, name) and config.task != "watch":
            yield f"{locate(name)}: is for task 'watch', and task is {config.task!r}; no effect."
    if "all" not in config.data_mode and config.task == "structure":
        yield f"{locate('data_mode')}: task 'structure' records no values; data_mode has no effect."


def earlier_dump(dump_path: Path, found: Sequence[Path]) -> Problem:
    """Return the problem of a dump_path that holds the ranks of an earlier dump. found: their folders."""
    which = ", ".join(path.parent.name for path in found[:4]) + (" and more" if len(found) > 4 else "")
    return Problem(
        "dump_path",
        f"{dump_path} already holds a dump ({which}), which is left as it is.",
        "Give another dump_path, move the old one away, or set overwrite (overwrite=True as an argument).",
    )
