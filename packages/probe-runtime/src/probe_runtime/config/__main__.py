"""Write settings.py from the table of keys, after a key changed: ``python -m probe_runtime.config``."""

from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .condition import Condition
from .config import SECTIONS, Config, keys_of
from .mapping_keys import Keep, Then
from .number_ranges import Numbers

_TOP = '''"""Give the type of each key of the configuration as an argument, for editors and mypy.

``python -m probe_runtime.config`` makes this file.
"""

from collections.abc import Collection, Mapping
from os import PathLike
from typing import Any, Literal, TypedDict

StepNumbers = int | str | Collection[int | str]
'''
#: The keys that msprobe's debuggers take by position.
_BY_POSITION = ("task", "dump_path", "level", "step")
_GIVEN = {
    Numbers: "StepNumbers",
    Path: "str | PathLike[str]",
    Keep: "Mapping[str, int]",
    Then: "Mapping[str, Any]",
    tuple[Condition, ...]: "Any",
    tuple[str, ...]: "str | Collection[str]",
    frozenset[str]: "str | Collection[str]",
}


def text() -> str:
    """Return the text of settings.py."""
    hints = get_type_hints(Config) | {"task": Literal[SECTIONS]}
    lines = {name: f"    {name}: {_given(name, hints[name])} | None\n" for name in keys_of("L2")}
    some = "".join(line for name, line in lines.items() if name not in _BY_POSITION)
    more = "".join(lines[name] for name in _BY_POSITION)
    rest = f'"""Hold the keys but {", ".join(_BY_POSITION)}, which debuggers take by position, too."""'
    return (
        f"{_TOP}\n\nclass Settings(TypedDict, total=False):\n    {rest}\n\n{some}\n\n"
        f'class AllSettings(Settings, total=False):\n    """Hold all keys."""\n\n{more}'
    )


def _given(name: str, hint: Any) -> str:
    """Return what may be written for a value that Probe keeps as this type."""
    if hint in _GIVEN:
        return _GIVEN[hint]
    if get_origin(hint) is Literal:
        options = ", ".join(f'"{each}"' for each in get_args(hint))
        # At level L2 a list of statistics, as MindSpore names them.
        return f"Literal[{options}]" + (" | Collection[str]" if name == "summary_mode" else "")
    parts = [each for each in get_args(hint) or (hint,) if each is not NoneType]
    return " | ".join(_given(name, each) if each in _GIVEN else each.__name__ for each in parts)


if __name__ == "__main__":
    Path(__file__).with_name("settings.py").write_text(text())
