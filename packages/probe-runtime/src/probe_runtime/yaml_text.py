"""Parse YAML with the safe loader, within bounds on size and depth, and with errors that name a line."""

from typing import Any

import yaml
from attrs import frozen
from probe_format.excerpts import brief, cut

#: A configuration with thousands of names has some hundred thousand bytes, and five levels.
MOST_BYTES, MOST_LEVELS = 1 << 20, 40
#: Counts keys, values and lists, each as often as aliases and merges repeat it.
_MOST_NODES = 100_000
_MOST_DIGITS = 400
#: Reads 1,700 names in 10 ms, the loader in Python in 150. Both are the safe loader; for text that needs no checks.
_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@frozen
class YamlError(Exception):
    """Raised for text that is not usable YAML.

    what: the reason.
    line: the line, from 1; None where no single line is at fault.
    """

    what: str
    line: int | None = None

    def __str__(self) -> str:
        return self.what if self.line is None else f"{self.what} (line {self.line})"


class _LineLoader(yaml.SafeLoader):
    """The safe loader with a YAML error that names the line where a scalar does not fit its tag.

    Whole numbers are those of YAML 1.2: 1.1, which PyYAML reads, makes 8 of 010, and 90 of 1:30, which is a text here.
    """

    def construct_yaml_int(self, node: yaml.ScalarNode) -> Any:
        text = str(self.construct_scalar(node))
        if ":" in text:
            return text
        if text.lstrip("+-0_")[:1].isdigit():
            return int(text.replace("_", ""))
        return super().construct_yaml_int(node)  # 0, and 0x10 or 0b11

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if (
            isinstance(node, yaml.ScalarNode)
            and node.tag.startswith("tag:yaml.org,2002:")
            and node.tag.rpartition(":")[2] in ("int", "float", "timestamp")
            and len(node.value) > _MOST_DIGITS
        ):
            what = f"a number of {len(node.value)} characters"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark)
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError):
            value = brief(node.value) if isinstance(node, yaml.ScalarNode) else "this value"
            what = f"{value} is not of type {cut(node.tag.rpartition(':')[2], 100)}"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from None


_LineLoader.add_constructor("tag:yaml.org,2002:int", _LineLoader.construct_yaml_int)


def parse(text: str) -> tuple[Any, yaml.Node | None]:
    """Return the content, and the root node, which has the lines; (None, None) of an empty text.

    Raises YamlError when the text is not usable YAML, RecursionError when it is nested too deeply.
    """
    try:
        loader = _LineLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None, None
            _look_through(node)
            return loader.construct_document(node), node
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(cut(" ".join(part.split()), 300) for part in (error.context, error.problem) if part)
        column = f", column {mark.column + 1}" if mark else ""
        at = f" (line {mark.line + 1}{column})" if mark else ""
        raise YamlError(f"{what}{at}", None if mark is None else mark.line + 1) from None
    except yaml.YAMLError as error:
        raise YamlError(cut(" ".join(str(error).split()), 300)) from None


def parse_own(text: bytes) -> Any:
    """Return the content of a file that came with a package of Probe's, which is known to be right."""
    return yaml.load(text, Loader=_FAST)


def compose(text: str) -> yaml.Node | None:
    """Return the root node of a text that is known to be JSON; None where YAML cannot parse it."""
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_FAST)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return node


def _look_through(root: yaml.Node) -> None:
    """Raise a YAML error when a key occurs twice, a node holds itself or is too deep, or there are too many values."""
    sizes: dict[int, int] = {}
    inside: set[int] = set()

    def size(node: yaml.Node, depth: int) -> int:
        if isinstance(node, yaml.ScalarNode):
            return 1
        if id(node) in sizes:
            return sizes[id(node)]
        if id(node) in inside:
            raise _complaint("a value that contains itself cannot be written out", node)
        if depth > MOST_LEVELS:
            raise _complaint("it is nested too deeply; a configuration has two levels", node)
        inside.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
            parts = [part for pair in node.value for part in pair]
        else:
            parts = node.value
        total = 1
        for part in parts:
            total += size(part, depth + 1)
            if total > _MOST_NODES:
                what = f"with its aliases written out it has over {_MOST_NODES:,} values; write them out, or fewer"
                raise _complaint(what, node)
        inside.discard(id(node))
        sizes[id(node)] = total
        return total

    size(root, 0)


def _check_keys(node: yaml.MappingNode) -> None:
    """Raise a YAML error when a key occurs twice, as YAML's own loader silently keeps the last."""
    seen: dict[object, int] = {}
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            line = key.start_mark.line + 1
            if key.value in seen:
                raise _complaint(f"the key {brief(key.value)} is on line {seen[key.value]} already", key)
            seen[key.value] = line


def _complaint(what: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, what, node.start_mark)
