"""Rename layers and functions of one run as another has them, by a mapping file, which is read or drafted here."""

from pathlib import Path

import yaml
from attrs import field, frozen
from probe_format.errors import UsageError
from probe_format.excerpts import brief

_SECTIONS = ("layers", "apis")


@frozen
class Mapping:
    """Rename the layers and functions of the first run to those of the second.

    layers: qualified name in the first run -> in the second; what is below follows, unless it is named itself.
    apis: function in the first run -> in the second, as ``linear: dense``.
    """

    layers: dict[str, str] = field(factory=dict)
    apis: dict[str, str] = field(factory=dict)

    def layer(self, path: str) -> str:
        """Return the name that a module of the first run has in the second."""
        head, tail = path, ""
        while head:
            if head in self.layers:
                return ".".join(part for part in (self.layers[head], tail) if part)
            head, _, last = head.rpartition(".")
            tail = f"{last}.{tail}" if tail else last
        return path

    def api(self, name: str) -> str:
        """Return the name that a function of the first run has in the second."""
        return self.apis.get(name, name)


def load_mapping(path: str | Path) -> Mapping:
    """Read a mapping file. Raises UsageError when it is not one, naming what is wrong and how it should look."""
    try:
        found = yaml.safe_load(Path(path).read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"the mapping file cannot be read: {error}.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # not text, or a day that is none
        raise UsageError(f"{path} is not YAML ({brief(error, 200)}). {_FORM}") from None
    found = {} if found is None else found
    if not isinstance(found, dict) or not set(found) <= set(_SECTIONS):
        raise UsageError(f"{path} has {brief(found, 120)}. {_FORM}")
    tables = {section: found.get(section) or {} for section in _SECTIONS}
    for section, table in tables.items():
        if not isinstance(table, dict) or not all(isinstance(x, str) for pair in table.items() for x in pair):
            raise UsageError(f"{path}: {section} holds {brief(table, 120)}. {_FORM}")
    return Mapping(**tables)


_FORM = (
    "A mapping file has the keys 'layers' and 'apis', each with names of the first run: names of the second."
)


def suggest_mapping(layers: dict[str, str], apis: dict[str, str]) -> str:
    """Return the text of a mapping file, a draft for the user to check.

    layers, apis: the names that differ between calls that were matched by structure.
    """
    head = "# Names of the first run: names of the second, as they were matched by structure. Check them.\n"
    shorter: dict[str, str] = {}
    for path, other in sorted(layers.items(), key=lambda item: item[0].count(".")):
        if Mapping(shorter).layer(path) != other:  # what follows from the layer above needs no line
            shorter[path] = other
    return head + yaml.safe_dump({"layers": shorter, "apis": apis}, sort_keys=False, allow_unicode=True)
