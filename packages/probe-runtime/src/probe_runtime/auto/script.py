"""Find a script or module, and run it as ``python`` does; a traceback of the user's begins with no frame of Probe's."""

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType, TracebackType
from typing import Any

from attrs import frozen
from probe_format.errors import UsageError
from probe_format.own_code import is_own


@frozen
class Script:
    """The script or module that is run.

    file: its absolute path, as the run may change the working directory.
    code: its code.
    word: its name in ``sys.argv``.
    spec: the spec of a module; None for a script.
    """

    file: str
    code: CodeType
    word: str
    spec: importlib.machinery.ModuleSpec | None = None


def script(path: str) -> Script:
    """Return the script in a file. Raises UsageError where it cannot be read."""
    file = os.path.join(os.getcwd(), path)
    if os.path.isdir(file):
        file = os.path.join(file, "__main__.py")
        if not os.path.isfile(file):
            raise UsageError(f"{path} is a folder without __main__.py.")
    try:
        with open(file, "rb") as opened:
            source = opened.read()
    except OSError as e:
        raise UsageError(f"{path} cannot be read: {e.strerror}.") from e
    return Script(file, compile(source, file, "exec", dont_inherit=True), path)


def module(name: str) -> Script:
    """Return the module or package of this name, as ``python -m`` finds it. Raises UsageError where it does not."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as e:
        raise UsageError(f"the module {name} cannot be imported: {e}.") from e
    code = None if spec is None else getattr(spec.loader, "get_code", lambda _: None)(name)
    if spec is None or code is None:
        raise UsageError(f"there is no module {name} to run.")
    origin = spec.origin or name
    return Script(origin, code, origin, spec)


def run(what: Script, arguments: Sequence[str]) -> None:
    """Run the script as the main module of this process.

    An Exception of the script becomes SystemExit(1), after its traceback is shown; anything else is raised as it is.
    """
    main = ModuleType("__main__")
    names: dict[str, Any] = vars(main)
    names.update(
        __file__=what.file,
        __cached__=getattr(what.spec, "cached", None),
        __spec__=what.spec,
        __package__=None if what.spec is None else what.spec.parent,
        __annotations__={},
        __builtins__=__builtins__,
    )
    names["__loader__"] = (
        importlib.machinery.SourceFileLoader("__main__", what.file) if what.spec is None else what.spec.loader
    )
    sys.modules["__main__"] = main
    if "__mp_main__" in sys.modules:  # its second name, from multiprocessing, which Probe has imported
        sys.modules["__mp_main__"] = main
    sys.argv[:] = [what.word, *arguments]
    try:
        exec(what.code, names)
    except Exception as e:
        e.__traceback__ = _of_the_user(e.__traceback__)
        sys.excepthook(type(e), e, e.__traceback__)
        raise SystemExit(1) from None


def _of_the_user(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of Probe's that it begins with."""
    while trace is not None and is_own(trace.tb_frame.f_globals.get("__name__")):
        trace = trace.tb_next
    return trace
