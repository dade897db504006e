"""The tables of spec/config.md say what the declaration of the configuration says."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
import pytest
from probe_runtime.config import settings
from probe_runtime.config.__main__ import text
from probe_runtime.config.config import KEYS, Config, keys_of

SPEC = (files("probe_runtime") / "spec" / "config.md").read_text()
TOP, _, SECTION = SPEC.partition("## Keys in the section of the task")


def rows(text: str) -> dict[str, list[str]]:
    """First cell without its marks -> the cells, of every row that begins with a key."""
    lines = [
        [c.strip() for c in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    return {cells[0].strip("`+"): cells for cells in lines if re.fullmatch(r"`\w+`\+?", cells[0])}


TABLE = {**rows(TOP), **rows(SECTION)}

# What is not the value itself: what an empty list or None means, and what depends on more than the key.
SAID = {
    "rank": "all", "step": "all", "scope": "everything", "list": "everything", "tensor_list": "none",
    "apis": "the packaged one", "dump_path": "`./dump_path`, and a warning", "data_mode": '`["all"]`',
    "level": "`L1`; `mix` for task `structure`", "overwrite": "false: refused",
    "async_bytes": "1073741824 (1 GiB)", "models": "what optimizers train",
    "keep": "every step", "max_bytes": "no limit", "min_free_bytes": "no limit",
    "export": "no tables", "dump_enable": "not set: steps are dumped, and the file is read once",
    "when": "none", "then": "they are dumped as the others; once",
}  # fmt: skip


def shown(value: Any) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else str(value)
        if isinstance(value, int)
        else f"`{value}`"
    )


def test_the_tables_have_every_key_and_no_other() -> None:
    assert TABLE.keys() == KEYS.keys()


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_in_the_specification_as_it_is_declared(name: str) -> None:
    declared, cells = KEYS[name], TABLE[name]
    assert cells[0].endswith("+") == declared.ours
    assert (name in rows(SECTION)) == declared.section
    assert cells[1] == declared.says
    default = getattr(Config(), name)
    assert cells[2] == SAID.get(name, shown(default))
    if (
        name in SAID
        and default not in ((), frozenset(), None, frozenset({"all"}))
        and not isinstance(default, Path)
    ):
        assert (
            cells[2].replace("`", "").startswith(str(default).lower() if default is False else str(default))
        )


def test_the_keys_as_arguments_are_those_of_the_table() -> None:
    """Write them with `python -m probe_runtime.config`."""
    assert Path(settings.__file__).read_text() == text()


def test_the_keys_of_kernels_are_in_the_specification() -> None:
    (paragraph,) = (p for p in SPEC.split("\n\n") if p.startswith("At level `L2`"))
    different = [name for name, declared in keys_of("L2").items() if declared != KEYS.get(name)]
    assert sorted(different) == sorted(["device", "file_format", "precision", "summary_mode"])
    assert all(f"`{name}`" in paragraph for name in different)


def test_every_field_is_a_key_or_has_its_reason() -> None:
    others = {"statistic_category": "made from summary_mode at level L2", "warnings": "made by resolve"}
    assert {a.name for a in attrs.fields(Config)} == keys_of("L2").keys() | others.keys()
