"""MindSpore's graph as text (``ms_output_trace_code_graph_N.ir``): operators, their types, their script lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from attrs import define, evolve, field, frozen
from probe_format.errors import FormatError

__all__ = ["Frame", "Graph", "Operator", "Type", "parse_ir", "read_ir"]

_HEAD = re.compile(r"\s*(?P<ref>%\S*?)(?:\((?P<name>[^=]*)\))? = (?P<op>[^(]+)\(")
_RETURN = re.compile(r"\s*[Rr]eturn\(")
_SUBGRAPH = re.compile(r"\s*subgraph\b(?! attr| instance)")
_FRAME = re.compile(
    r"\s*#? ?In file (?P<file>.+?)(?:\((?P<old>\d+)\)|:(?P<line>\d+)(?:~(?P<end>\d+))?(?:, \d+~\d+)?)/(?P<text>.*)"
)
_NAME = re.compile(
    r"\s*[:#]\s*(?:full_?\s?name_?\s?with_?\s?scope:?\s*)?\((?P<name>[^<>\s]+)\)\s*", re.IGNORECASE
)
_DEVICE = re.compile(r"<(?P<dtype>\w+?)x(?P<format>[A-Za-z]\w*)\[const vector\][\[{](?P<shape>[^\]}]*)[\]}]")
_HOST = re.compile(
    r"<(?:Ref\[)?Tensor\[(?P<dtype>\w+)\]\]?(?:x\[const vector\]\[(?P<old>[^\]]*)\]|, \((?P<shape>[^()]*)\))?"
)
_SCALAR = re.compile(r"<(?P<dtype>\w+), NoShape")
_BLOCK = re.compile(
    r"\s*(?:@|async\s|(?:def|class|if|elif|else|for|while|with|try|except|finally|match|case)\b)"
)
_UID = re.compile(r'[{ ]unique_id: "(\w+)"')
_FORWARD_UID = re.compile(r'forward_unique_id: "(\w+)"')
_SHARED = "<~~This line of code can be shared"


@frozen
class Frame:
    """A line of the script. line, end: from 1; end is line where the expression has only one.

    text: the first line's code.
    """

    file: str
    line: int
    end: int
    text: str

    def covers(self, line: int) -> bool:
        """Whether this is about that line: for a block (def, if, for, ...) only its first, of a call any."""
        if _BLOCK.match(self.text):
            return line == self.line
        return self.line <= line <= self.end


@frozen
class Type:
    """One input or output. dtype: ``Float32``, ...; empty for what is no tensor and no number.

    shape: None for what has none; -1 is a dimension that varies. text: as in the file.
    """

    text: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    format: str = ""


@frozen
class Operator:
    """One node. op: its type. full_name: with scope, as ``Default/conv1-Conv2d/Conv2D-op0``.

    args: what goes in: ``%3``, ``%para1_x``, or the text of a constant. inputs, outputs: on the host.
    device_inputs, device_outputs: on the device; empty for nodes that are no kernels (Load, MakeTuple, ...).
    frames: the script's lines, outermost first. gradient: the lines are those of the forward operator.
    line: in the .ir file. uid, forward_uid: MindSpore's mark of the operator, and of the one that it is the
    gradient of; empty without.
    """

    ref: str
    op: str
    full_name: str
    args: tuple[str, ...] = ()
    inputs: tuple[Type, ...] = ()
    outputs: tuple[Type, ...] = ()
    device_inputs: tuple[Type, ...] = ()
    device_outputs: tuple[Type, ...] = ()
    frames: tuple[Frame, ...] = ()
    gradient: bool = False
    line: int = 0
    uid: str = ""
    forward_uid: str = ""

    @property
    def is_kernel(self) -> bool:
        """Whether something is run for it, so that there can be files."""
        return bool(self.device_inputs or self.device_outputs)


@frozen(slots=False)
class Graph:
    """A graph. problems: operators that could not be understood, in sentences."""

    operators: tuple[Operator, ...]
    problems: tuple[str, ...] = ()

    def at(self, file: str, line: int) -> tuple[Operator, ...]:
        """The operators that a line of the script made, in order; ``file``: a path, or the end of one."""
        wanted = tuple(part for part in file.replace("\\", "/").split("/") if part not in ("", "."))
        return tuple(
            operator
            for operator in self.operators
            if any(frame.covers(line) and _is(frame.file, wanted) for frame in operator.frames)
        )

    def scope_of(self, operator: Operator) -> str:
        """The full name that tells the Cells around an operator: of a gradient, its forward operator's.

        A gradient's own name can have the wrong Cell: the second BiasAddGrad of a net is often called after the
        layer of the first.
        """
        if not operator.forward_uid:
            return operator.full_name
        return self._by_uid.get(operator.forward_uid, operator.full_name)

    @cached_property
    def _by_uid(self) -> dict[str, str]:
        return {op.uid: op.full_name for op in self.operators if op.uid and not op.forward_uid}

    def shared(self, operator: Operator) -> int:
        """How many other operators of its type have all the same lines, so that these may be another call's.

        0 for gradients, and for what has one: their lines are right.
        """
        if operator.gradient or operator.uid in self._with_gradient:
            return 0
        return sum(
            other is not operator and not other.gradient and (other.op, other.frames) == (operator.op, operator.frames)
            for other in self.operators
        )

    @cached_property
    def _with_gradient(self) -> frozenset[str]:
        return frozenset(op.forward_uid for op in self.operators if op.forward_uid)

    @property
    def files(self) -> tuple[str, ...]:
        """Every script that a line comes from."""
        return tuple(dict.fromkeys(frame.file for op in self.operators for frame in op.frames))


def _is(path: str, wanted: tuple[str, ...]) -> bool:
    parts = tuple(part for part in path.replace("\\", "/").split("/") if part not in ("", "."))
    return parts[-len(wanted) :] == wanted


def read_ir(path: Path) -> Graph:
    """Read a file. Raises FormatError when there is no operator in it, OSError when it cannot be opened."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        graph = parse_ir(lines, str(path))
    if not graph.operators:
        raise FormatError(
            f"{path} has no operators in it. An .ir file that a dump wrote has lines like "
            "'%1(equiv_output) = Conv2D(%para1_x, %0) ...'; is this one?"
        )
    return graph


@define
class _Draft:
    """An operator of which lines are still coming."""

    line: int
    head: str
    details: list[str] = field(factory=list)
    frames: list[Frame] = field(factory=list)
    gradient: bool = False


def parse_ir(lines: Iterator[str], where: str = "the graph") -> Graph:
    """Parse the lines of a graph; nothing stops it, what is not understood is in ``problems``."""
    operators: list[Operator] = []
    problems: list[str] = []
    known: dict[str, Frame] = {}
    draft: _Draft | None = None

    def finish() -> None:
        if draft is None:
            return
        try:
            operators.append(_operator(draft))
        except ValueError as error:
            problems.append(f"{where}:{draft.line}: an operator cannot be read: {error}.")

    for number, line in enumerate(lines, start=1):
        if (" = " in line and _HEAD.match(line)) or _RETURN.match(line):
            finish()
            draft = _Draft(number, line.rstrip("\n"))
        elif draft is None:
            continue
        elif (stripped := line.strip()) == "}" or _SUBGRAPH.match(line):
            finish()
            draft = None
        elif stripped.startswith(("# In file ", "In file ")):
            frame = known.get(stripped)
            if frame is None:
                frame = known[stripped] = _frame(stripped)
            draft.frames.append(frame)
        elif stripped.startswith("# Corresponding forward node candidate"):
            draft.gradient = True
        elif stripped.startswith((":", "#")):
            draft.details.append(stripped)
        elif not draft.details:
            draft.head += " " + stripped  # a constant's value goes on over lines
    finish()
    return Graph(_with_own_lines(operators), tuple(problems))


def _with_own_lines(operators: list[Operator]) -> tuple[Operator, ...]:
    """Where a Cell is called on several lines, MindSpore gives all its operators the lines of one call (it says
    so: "can be shared by multiple nodes"). Their gradients have the right ones, and say whose gradient they are.
    """
    lines = {op.forward_uid: op.frames for op in reversed(operators) if op.forward_uid and op.frames}
    return tuple(
        evolve(op, frames=lines[op.uid]) if not op.forward_uid and op.uid in lines else op for op in operators
    )


def _frame(text: str) -> Frame:
    match = _FRAME.fullmatch(text)
    if match is None:
        return Frame(text.removeprefix("# In file "), 0, 0, "")
    line = int(match["old"] or match["line"])
    code = match["text"].split(_SHARED)[0].rstrip().removesuffix("/")
    return Frame(match["file"], line, int(match["end"] or line), code)


def _operator(draft: _Draft) -> Operator:
    match = _HEAD.match(draft.head)
    ref, op, start = (
        (match["ref"], match["op"], match.end()) if match else ("", "Return", draft.head.index("(") + 1)
    )
    full_name = ""
    host: tuple[tuple[Type, ...], tuple[Type, ...]] | None = None
    device: tuple[tuple[Type, ...], tuple[Type, ...]] = ((), ())
    for detail in draft.details:
        if "<" in detail and detail.startswith(":"):
            sides = _sides(detail)
            if _DEVICE.search(detail):
                device = sides
            elif host is None:
                host = sides
        elif (name := _NAME.fullmatch(detail)) is not None and ("/" in name["name"] or "-op" in name["name"]):
            full_name = name["name"]
    inputs, outputs = host or ((), ())
    op = op.strip().removeprefix("PrimFunc_").removeprefix("DoSignaturePrimitive::S-Prim-")
    return Operator(
        ref=ref,
        op=op,
        full_name=full_name,
        args=tuple(_split(draft.head, start)),
        inputs=inputs,
        outputs=outputs,
        device_inputs=device[0],
        device_outputs=device[1],
        frames=tuple(draft.frames),
        gradient=draft.gradient or full_name.startswith("Gradients/"),
        line=draft.line,
        uid=_first(_UID, draft.head),
        forward_uid=_first(_FORWARD_UID, draft.head),
    )


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


_OPEN, _CLOSE = "([{<", ")]}>"


def _split(text: str, start: int) -> Iterator[str]:
    """The pieces between commas from ``start`` (after a bracket) to the bracket that closes it."""
    depth, piece = 0, start
    quoted = False
    for at in range(start, len(text)):
        char = text[at]
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE and not text.startswith("->", at - 1):
            if depth == 0:
                if text[piece:at].strip():
                    yield text[piece:at].strip()
                return
            depth -= 1
        elif char == "," and depth == 0:
            yield text[piece:at].strip()
            piece = at + 1
    raise ValueError("a bracket is not closed")


def _sides(detail: str) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
    """``: (<A>, <B>) -> (<C>)``: inputs and outputs. MindSpore 1.5 has ``(<A>) -> (<B>) -> (<C>)`` too."""
    groups: list[tuple[Type, ...]] = []
    at = detail.find("(")
    while at >= 0:
        pieces = list(_split(detail, at + 1))
        groups.append(tuple(_type(piece) for piece in pieces))
        arrow = detail.find(") -> (", at)
        while arrow >= 0 and _depth(detail, at, arrow) != 1:
            arrow = detail.find(") -> (", arrow + 1)
        at = -1 if arrow < 0 else arrow + 5
    if len(groups) == 1:  # Return has no outputs
        return groups[0], ()
    return tuple(one for group in groups[:-1] for one in group), groups[-1]


def _depth(text: str, start: int, end: int) -> int:
    return text.count("(", start, end) - text.count(")", start, end)


def _type(text: str) -> Type:
    if match := _DEVICE.match(text):
        return Type(text, match["dtype"], _shape(match["shape"]), match["format"])
    if match := _HOST.match(text):
        dims = match["old"] if match["old"] is not None else match["shape"]
        return Type(text, match["dtype"], None if dims is None else _shape(dims))
    if match := _SCALAR.match(text):
        return Type(text, match["dtype"])
    return Type(text)


def _shape(text: str) -> tuple[int, ...] | None:
    numbers = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return tuple(int(n) for n in numbers)
    except ValueError:
        return None
