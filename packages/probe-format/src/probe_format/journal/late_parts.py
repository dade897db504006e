"""Complete tensor objects that were recorded before their statistics, or before their file was on disk."""

from __future__ import annotations

from typing import Any

from attrs import define, field

__all__ = ["LateParts"]

Tensor = dict[str, Any]

_NO_NUMBERS = "statistics: the process ended before this was written"
_NO_FILE = "tensor file: the process ended before this was written"


@define
class LateParts:
    """Match incomplete tensor objects with the events that complete them ("$": statistics, "$f": files).

    Either side may come first, as another thread may write its event before the call's own.

    expected: whether anything can come late at all (spec/journal.md, "deferred").
    """

    expected: bool = True
    _numbers: dict[int, list[Tensor]] = field(factory=dict)
    _files: dict[int, list[tuple[Tensor, Any]]] = field(factory=dict)
    _early_numbers: dict[int, Tensor] = field(factory=dict)
    _early_files: set[int] = field(factory=set)

    def remember(self, value: Any) -> Any:
        """Keep track of the tensors in ``value`` that are incomplete, and return ``value``."""
        if not self.expected:
            return value
        todo = [value]
        while todo:
            item = todo.pop()
            if isinstance(item, dict):
                if item:
                    self._remember(item)
                todo.extend(item.values())
            elif isinstance(item, list):
                todo.extend(item)
        return value

    def numbers(self, ref: int, numbers: Tensor) -> None:
        """Fill in the statistics of the tensors with ``"$": ref``."""
        if ref not in self._numbers:
            self._early_numbers[ref] = numbers
        for tensor in self._numbers.pop(ref, ()):
            tensor.pop("$", None)
            if tensor.get("unsupported") == _NO_NUMBERS:
                del tensor["unsupported"]
            tensor.update(numbers)
            if "$f" in numbers:  # a file that came with them
                self._remember(tensor)

    def file(self, ref: int) -> None:
        """Confirm the files of the tensors with ``"$f": ref``."""
        if ref not in self._files:
            self._early_files.add(ref)
        for tensor, name in self._files.pop(ref, ()):
            tensor.pop("$f", None)
            if tensor.pop("lost", None) is not None:
                tensor["data_name"] = name

    def cut_short(self) -> None:
        """Mark every tensor that is still incomplete; `numbers` and `file` remove the marks again."""
        for tensors in self._numbers.values():
            for tensor in tensors:
                tensor.pop("$", None)
                tensor["unsupported"] = _NO_NUMBERS
        for files in self._files.values():
            for tensor, _ in files:
                tensor.pop("$f", None)
                if tensor.pop("data_name", None) is not None:
                    tensor["lost"] = _NO_FILE

    def _remember(self, item: Tensor) -> None:
        # In the user's objects a key "$" holds an encoded value, which is never a bare number.
        ref = item.get("$")
        if type(ref) is int:
            if ref in self._early_numbers:
                del item["$"]
                item.update(self._early_numbers.pop(ref))
            else:
                self._numbers.setdefault(ref, []).append(item)
        ref = item.get("$f")
        if type(ref) is int:
            if ref in self._early_files:
                del item["$f"]
                self._early_files.remove(ref)
            else:
                self._files.setdefault(ref, []).append((item, item.get("data_name")))
