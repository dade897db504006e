"""Which functions a dump records: the list in apis.yaml, with the user's own file applied over it."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import yaml
from probe_format.errors import ConfigError, Problem
from probe_format.suggest import nearest

__all__ = ["RISK_LEVELS", "SECTIONS", "Api", "Apis", "load_apis", "resolve_owner"]

RISK_LEVELS = ("ALL", "FOCUS", "CORE")

# section of apis.yaml -> (prefix of the labels, dotted paths of the objects that carry the names). A name
# is patched in every place that has it: torch.distributed re-exports what distributed_c10d calls by its own
# global name.
SECTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "functional": ("Functional", ("torch.nn.functional",)),
    "tensor": ("Tensor", ("torch.Tensor",)),
    "torch": ("Torch", ("torch",)),
    "vf": ("VF", ("torch._VF",)),
    "distributed": ("Distributed", ("torch.distributed", "torch.distributed.distributed_c10d")),
    "torch_npu": ("NPU", ("torch_npu",)),
    "npu_distributed": ("Distributed", ("torch_npu.distributed",)),
    "mindspeed": ("MindSpeed", ("mindspeed.ops",)),
}
_BUILT_IN = Path(__file__).with_name("apis.yaml")


@attrs.frozen
class Api:
    """One listed name, e.g. section "torch", name "linalg.svd"."""

    section: str
    name: str

    @property
    def prefix(self) -> str:
        """First part of the record's name: "Torch"."""
        return SECTIONS[self.section][0]

    @property
    def api(self) -> str:
        """Second part of the record's name; a dotted name is cut to its last part: "svd".

        Not so in torch.special and torch.sparse, which msprobe does not record: Torch.erf.0 must stay the first
        torch.erf, whatever torch.special.erf does.
        """
        return self.name if self.name.startswith(("special.", "sparse.")) else self.name.rpartition(".")[2]

    @property
    def composite(self) -> bool:
        """Whether the calls inside it are recorded too, so that they count as msprobe counts them."""
        return f"{self.prefix}.{self.api}" in _composites()

    @property
    def owners(self) -> tuple[str, ...]:
        """Dotted paths of the objects below which `name` is looked up."""
        return SECTIONS[self.section][1]


@attrs.frozen
class Apis:
    """The names to record, in a fixed order (an object listed twice is labelled by its first place)."""

    apis: tuple[Api, ...]

    def __iter__(self) -> Any:
        return iter(self.apis)

    def __len__(self) -> int:
        return len(self.apis)

    def names(self, section: str) -> tuple[str, ...]:
        """The listed names of one section."""
        return tuple(api.name for api in self.apis if api.section == section)


def load_apis(path: str | Path | None = None, *, views: bool = False, risk_level: str = "ALL") -> Apis:
    """Read the list of functions to record.

    `path` is the user's own apis.yaml: the same sections, where a name is added and "-name" is taken out.
    `views` also takes the second list, of views, copies and factories. `risk_level` is ALL (everything),
    FOCUS (without what only moves values) or CORE (only what carries the arithmetic); names that the user's
    file adds are kept at every level. Raises ConfigError with every problem of the user's file at once.
    """
    if risk_level not in RISK_LEVELS:
        what = f"risk_level is {risk_level!r}"
        raise ConfigError([Problem("risk_level", what, _remedy(str(risk_level).upper(), RISK_LEVELS))])
    text = _read_built_in()
    chosen = {section: list(text.get(section, ())) for section in SECTIONS}
    if views:
        for section, names in text["views"].items():
            chosen[section] += names
    drops = frozenset(text["risk_level"]["focus_drops"])
    keeps = frozenset(text["risk_level"]["core_keeps"])

    def wanted(api: Api) -> bool:
        if risk_level == "FOCUS":
            return api.api not in drops
        return risk_level == "ALL" or api.api in keeps

    apis = [api for section, names in chosen.items() for name in names if wanted(api := Api(section, name))]
    if path is not None:
        apis = _with_user_file(apis, Path(path), text)
    return Apis(tuple(dict.fromkeys(apis)))


def resolve_owner(path: str) -> Any | None:
    """The module or class at a dotted path if it is already imported, else None; never imports anything.

    Probe must not import torch_npu or mindspeed for a user who does not: both rewrite torch when imported.
    """
    parts = path.split(".")
    found: Any = sys.modules.get(parts[0])
    for end, part in enumerate(parts[1:], start=2):
        if found is None:
            return None
        found = sys.modules.get(".".join(parts[:end])) or getattr(found, part, None)
    return found


@functools.cache
def _composites() -> frozenset[str]:
    return frozenset(_read_built_in()["composites"])


@functools.cache
def _read_built_in() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load(_BUILT_IN.read_bytes(), Loader=_LOADER)
    return loaded


# The C loader reads our 1,700 names in 10 ms, the Python one in 150. Both are the safe loader.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _with_user_file(apis: list[Api], path: Path, text: Mapping[str, Any]) -> list[Api]:
    """`apis` with the additions and removals of the user's file."""
    try:
        loaded = yaml.load(path.read_bytes(), Loader=_LOADER)
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise ConfigError([Problem(str(path), what, "give the path of a readable YAML file")]) from error
    except yaml.YAMLError as error:
        what = f"is not YAML: {' '.join(str(error).split())}"
        raise ConfigError([Problem(str(path), what, 'write sections as "torch: [relu, -cat]"')]) from error
    if loaded is None:
        return apis
    if not isinstance(loaded, Mapping):
        what = f"holds a {type(loaded).__name__}, not sections"
        raise ConfigError([Problem(str(path), what, 'write sections as "torch: [relu, -cat]"')])
    problems: list[Problem] = []
    added: list[Api] = []
    removed: set[Api] = set()
    for section, names in loaded.items():
        where = f"{path}: {section}"
        if section not in SECTIONS:
            problems.append(Problem(where, "is not a section", _remedy(str(section), SECTIONS)))
        elif not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            problems.append(Problem(where, "is not a list of names", "write it as [name, name, -name]"))
        else:
            listed = {*text.get(section, ()), *text["views"].get(section, ())}
            for name in names:
                api = Api(section, name.removeprefix("-"))
                problem = _problem_with(api, listed, where, removes=name.startswith("-"))
                if problem:
                    problems.append(problem)
                elif name.startswith("-"):
                    removed.add(api)
                else:
                    added.append(api)
    if problems:
        raise ConfigError(problems)
    return [api for api in apis if api not in removed] + added


def _problem_with(api: Api, listed: Iterable[str], where: str, *, removes: bool) -> Problem | None:
    """What is wrong with a name of the user's file, if anything."""
    listed = set(listed)
    if removes:
        if api.name in listed:
            return None
        return Problem(where, f'"-{api.name}" takes out a name that is not listed', _remedy(api.name, listed))
    owners = [owner for path in api.owners if (owner := resolve_owner(path)) is not None]
    # Without the package (an NPU file read on a laptop) nobody can say whether the name exists:
    # Patches.missing will.
    if not owners or api.name in listed or any(_is_callable(owner, api.name) for owner in owners):
        return None
    known = {name for owner in owners for name in dir(owner) if _is_callable(owner, name)} | listed
    return Problem(where, f'"{api.name}" is no function of {api.owners[0]}', _remedy(api.name, known))


def _is_callable(owner: Any, name: str) -> bool:
    found = owner
    for part in name.split("."):
        # getattr_static first: asking torch for an unknown name may import things or warn.
        try:
            found = getattr(found, part)
        except Exception:
            return False
    return callable(found) and not inspect.isclass(found)


def _remedy(name: str, known: Iterable[str]) -> str:
    close = nearest(name, known)
    if close:
        return "did you mean " + ", ".join(close) + "?"
    return "see probe_torch/apis.yaml for the known names"
