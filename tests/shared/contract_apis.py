"""The lists of functions (apis.yaml) of every framework: what a list holds, and how a user's file changes it.

Who runs it has the fixture `listing`.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml
from probe_format.errors import ConfigError
from probe_runtime.patching import resolve_owner

# What Python calls for an operator or a built-in function, with what it calls for `x += y` and where x knows none.
_OPERATORS = {
    f"__{side}{name[2:]}" for name in dir(operator) if name.startswith("__") for side in ("", "r", "i")
}
_OPERATORS |= {"__round__", "__reversed__"}
_OPERATORS -= {"__call__"}  # of the class


@attrs.frozen
class Listing:
    """A framework's list.

    load: load_apis of its package. levels: its RISK_LEVELS.
    views: names that the second list adds. dropped: names that FOCUS leaves out. core: names that CORE keeps.
    not_core: one that it does not.
    added: what a user may add: the section, the name in it, the name of its records. removed: the same, of what is
    listed.
    namespaces: where public functions are looked for: those of the sections, and those below that dotted names are in.
    left_out: the file with the public functions that are in no list: namespace -> reason -> patterns of their names.
    owner: what functions of the section of ``added`` are functions of. other: another section.
    """

    load: Callable[..., Any]
    levels: tuple[str, ...]
    views: set[str]
    dropped: set[str]
    core: set[str]
    not_core: str
    added: tuple[str, str, str]
    removed: tuple[tuple[str, str, str], ...]
    owner: str
    other: str
    namespaces: tuple[str, ...]
    left_out: Path

    def labels(self, **options: Any) -> set[str]:
        return {f"{api.prefix}.{api.api}" for api in self.load(**options)}


def user_file(folder: Path, text: str) -> Path:
    path = folder / "apis.yaml"
    path.write_text(text)
    return path


def test_no_name_twice(listing: Listing) -> None:
    apis = listing.load(views=True)
    sections = {api.section for api in apis}
    for section in sections:
        names = [api.name for api in apis if api.section == section]
        assert len(names) == len(set(names)) > 0, section
    assert len(sections) > 4


def test_every_public_function_is_listed_or_left_out_with_a_reason(listing: Listing) -> None:
    """The lists are what the installed framework has: a function that returns or writes tensors is in one of them."""
    left_out = yaml.safe_load(listing.left_out.read_text())
    assert left_out.keys() <= set(listing.namespaces)
    listed = {f"{owner}.{api.name}" for api in listing.load(views=True) for owner in api.owners}
    unknown = []
    for path in listing.namespaces:
        patterns = [p for names in left_out.get(path, {}).values() for p in names]
        home = resolve_owner(path)
        for name in sorted(set(dir(home))):
            if (name.startswith("_") and name not in _OPERATORS) or f"{path}.{name}" in listed:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = getattr(home, name)
            if (
                callable(value)
                and not isinstance(value, type)
                and not any(fnmatch(name, p) for p in patterns)
            ):
                unknown.append(f"{path}.{name}")
    assert not unknown, f"{len(unknown)} functions are in no list, and nothing says why: {unknown}"


def test_what_writes_numbers_is_recorded_without_views(listing: Listing) -> None:
    assert {"Tensor.copy_", "Tensor.fill_", "Tensor.zero_"} <= listing.labels()


def test_views_are_a_second_list(listing: Listing) -> None:
    more = listing.labels(views=True) - listing.labels()
    assert listing.views <= more
    assert listing.labels() < listing.labels(views=True)


def test_risk_levels_are_nested(listing: Listing) -> None:
    everything, focus, core = (listing.labels(risk_level=level) for level in listing.levels)
    assert core < focus < everything
    assert listing.dropped & focus == set()
    assert listing.core <= core
    assert listing.not_core not in core


def test_unknown_risk_level(listing: Listing) -> None:
    with pytest.raises(ConfigError, match=r"risk_level is 'focus'.*FOCUS"):
        listing.load(risk_level="focus")


def test_a_user_file_adds_and_removes(listing: Listing, tmp_path: Path) -> None:
    section, name, label = listing.added
    lines = {section: [name]}
    for where, what, _ in listing.removed:
        lines.setdefault(where, []).append(f"-{what}")
    path = user_file(tmp_path, "".join(f"{key}: [{', '.join(names)}]\n" for key, names in lines.items()))
    assert listing.labels(path=path) - listing.labels() == {label}
    assert listing.labels() - listing.labels(path=path) == {label for *_, label in listing.removed}
    # What the user asks for is there at every level.
    assert label in listing.labels(path=path, risk_level="CORE")


def test_an_empty_user_file_changes_nothing(listing: Listing, tmp_path: Path) -> None:
    assert listing.load(user_file(tmp_path, "# nothing yet\n")) == listing.load()


def test_every_problem_of_a_user_file_at_once(listing: Listing, tmp_path: Path) -> None:
    section, other = listing.added[0], listing.other
    path = user_file(tmp_path, f"{section}: [rellu, -zerox]\ntensr: [add]\n{other}: relu\n")
    with pytest.raises(ConfigError) as caught:
        listing.load(path)
    problems = {(p.where.rpartition(": ")[2], p.what, p.remedy) for p in caught.value.problems}
    assert len(problems) == 4
    texts = "\n".join(" ".join(problem) for problem in problems)
    for part in (
        f'"rellu" is not a function of {listing.owner}', "relu", '"-zerox" takes out', "tensr", "tensor",
        "list of names",
    ):  # fmt: skip
        assert part in texts


@pytest.mark.parametrize("text", ["- relu\n", "torch: [relu\n", "17\n"])
def test_a_user_file_of_another_kind(listing: Listing, tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"apis\.yaml"):
        listing.load(user_file(tmp_path, text))


def test_a_missing_user_file(listing: Listing, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        listing.load(tmp_path / "nowhere.yaml")


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)


@pytest.mark.parametrize(
    "text",
    [LAUGHS, "{section}: !!int ''\n", "[" * 20_000, "x" * (1 << 21), '{section}: ["\\ud800"]'],
    ids=range(5),
)
def test_a_crafted_user_file_is_a_configerror_of_bounded_length(
    listing: Listing, tmp_path: Path, text: str
) -> None:
    path = user_file(tmp_path, text.replace("{section}", listing.added[0]))
    with pytest.raises(ConfigError) as error:
        listing.load(path)
    assert len(str(error.value)) < 60_000


__all__ = [name for name in dir() if name.startswith("test_")]
