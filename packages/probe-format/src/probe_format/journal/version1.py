"""Turn the events of a journal of version 1, each of which is one JSON object, into those of this version.

There, a backward record's form came with the ``exit`` of its call, ``$`` and ``$f`` in a tensor stood for what was to
come, and values were part of the event's JSON (spec/journal.md, "Version 1").
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import define, field

from probe_format import jsonio
from probe_format.excerpts import brief
from probe_format.names import with_direction
from probe_format.statistics import WHOLE

from . import events
from .events import Event
from .pages import hole

MAGIC_1 = b"PROBEJ1\n"

Old = Mapping[str, Any]


@define
class Upgrade:
    """Turn one event after the other into today's form; keep what later ones need of earlier ones.

    forms: name of a forward record -> the form of its gradients.
    files: number of a file -> its name.
    written: the numbers of files that were confirmed.
    passes: name of a backward record -> number of each backward pass -> the same, counted from 0.
    arrived: (record, path) -> how many gradients came there.
    """

    forms: dict[str, Any] = field(factory=dict)
    files: dict[int, str] = field(factory=dict)
    written: set[int] = field(factory=set)
    passes: dict[str, dict[Any, int]] = field(factory=dict)
    arrived: dict[tuple[str, str], int] = field(factory=dict)

    def event(self, old: Old) -> Iterator[Event]:
        """Yield the event in today's form; nothing where its kind is unknown or needs no event of its own."""
        kind = old["k"]
        if "g" in old and kind in ("exit", "redone"):  # a reentrant checkpoint has it in its second run
            self.forms[old["n"]] = old["g"]
        if kind == "file":
            self.written.update(old["r"])
        elif kind in _NOW:
            yield _NOW[kind](self, old)

    def files_written(self) -> Event:
        """Return the event that fills in all confirmed files: at the end, as some came before their tensors."""
        done = [ref for ref in self.files if ref in self.written]
        return events.fill([(2 * ref + 1, b',"data_name":' + jsonio.dumps(self.files[ref])) for ref in done])

    def _enter(self, old: Old) -> Event:
        content = {key: old[key] for key in "knusrx" if key in old}
        letters = "".join(letter for letter in "awp" if letter in old)
        return {"u": None, **content, "v": letters}, [self._value(old[letter]) for letter in letters]

    def _save(self, old: Old) -> Event:
        name, form = old.get("g", (None, None))
        return events.save(old["n"], self._value(old["v"]), None if name is None else (name, form))

    def _output(self, old: Old) -> list[bytes]:
        return [self._value(old["o"])] if "o" in old else []

    def _back(self, old: Old) -> Event:
        pairs = [([side, *_path(path)], value) for side in "io" for path, value in old.get(side, ())]
        form = self.forms.get(with_direction(old["n"], "forward"), (0, 0))
        content = {key: old[key] for key in ("k", "n", "r", "partial") if key in old}
        passes = self.passes.setdefault(old["n"], {})
        content |= {"t": passes.setdefault(old.get("t"), len(passes)), "u": old.get("u"), "g": form}
        content["v"] = [slot for slot, _ in pairs]
        return content, [self._value(value) for _, value in pairs]

    def _grad(self, old: Old) -> Event:
        place = old["n"], jsonio.dumps(old["p"]).decode()
        number = self.arrived.get(place, 0)
        self.arrived[place] = number + 1
        value = old["v"]
        if number:
            value = {key: value[key] for key in value if key in events.LATER_PASS}
        return events.grad(old["n"], old["p"], self._value(value), number)

    def _value(self, value: Any) -> bytes:
        text = jsonio.dumps(value)
        if b'"$' not in text:  # nearly all values wait for nothing
            return text
        if isinstance(value, list):
            return b"[%b]" % b",".join(map(self._value, value))
        if not isinstance(value, dict):
            return text
        # In the user's objects a key "$" holds an encoded value, which is never a bare number.
        if type(value.get("$")) is int or type(value.get("$f")) is int:
            return self._tensor(value)
        return b"{%b}" % self._members(value)[1:]

    def _tensor(self, tensor: dict[str, Any]) -> bytes:
        """Return a tensor object with holes. Those of files get odd numbers, as both kinds were counted from 1."""
        ref = tensor.get("$")
        gone = ("$", "$f", "data_name", *(WHOLE if type(ref) is int else ()))
        text = jsonio.dumps({key: item for key, item in tensor.items() if key not in gone})[:-1]
        if type(ref) is int:
            text += hole("n" if "Max" in tensor else "c", 2 * ref)
        elif "data_name" in tensor and "$f" not in tensor:
            text += b',"data_name":' + jsonio.dumps(tensor["data_name"])
        return text + self._file(tensor) + b"}"

    def _file(self, tensor: Old) -> bytes:
        number = tensor.get("$f")
        if type(number) is not int:
            return b""
        self.files[number] = tensor.get("data_name", "")
        return hole("f", 2 * number + 1)

    def _members(self, content: Old) -> bytes:
        gone = ("$f", "data_name") if type(content.get("$f")) is int else ()
        plain = [(jsonio.dumps(key), self._value(item)) for key, item in content.items() if key not in gone]
        return b"".join([b",%b:%b" % pair for pair in plain]) + (self._file(content) if gone else b"")


def _path(path: Any) -> list[Any]:
    if not isinstance(path, list):
        raise ValueError(f"{brief(path)} is no path to a slot")
    return path


#: Kind of an old event -> what makes today's of it.
_NOW: dict[str, Callable[[Upgrade, Old], Event]] = {
    **dict.fromkeys(("head", "frames", "fault", "tally"), lambda _, old: (dict(old), ())),
    "enter": Upgrade._enter,
    "exit": lambda self, old: ({key: old[key] for key in "kne" if key in old}, self._output(old)),
    "redo": lambda self, old: events.redo(
        old["n"], self._value(old.get("a", [])), self._value(old.get("w", {}))
    ),
    "redone": lambda self, old: ({"k": "redone", "n": old["n"]}, self._output(old)),
    "back": Upgrade._back,
    "pgrad": lambda self, old: events.pgrad(old["n"], old["q"], self._value(old["v"])),
    "save": Upgrade._save,
    "grad": Upgrade._grad,
    "stat": lambda self, old: events.fill([(2 * ref, self._members(each)) for ref, each in old["r"]]),
}
