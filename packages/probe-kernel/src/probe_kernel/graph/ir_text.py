"""Read ``ms_output_trace_code_graph_N.ir``, MindSpore's graph as text, of versions 1.5 to 2.10.

An operator's types are written as ``(<Tensor[Float32], (2, 3)>) -> (...)``.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from attrs import define, evolve, field
from probe_format.errors import FormatError

from .model import Frame, Graph, Operator, Type

Sides = tuple[tuple[Type, ...], tuple[Type, ...]]

_HEAD = re.compile(r"\s*(?P<ref>%\S*?)(?:\((?P<name>[^=]*)\))? = (?P<op>[^(]+)\(")
_RETURN = re.compile(r"\s*[Rr]eturn\(")
_SUBGRAPH = re.compile(r"\s*subgraph\b(?! attr| instance)")
_FRAME = re.compile(
    r"\s*#? ?In file (?P<file>.+?)"
    r"(?:\((?P<old>\d{1,9})\)|:(?P<line>\d{1,9})(?:~(?P<end>\d{1,9}))?(?:, \d+~\d+)?)/(?P<text>.*)",
    re.ASCII,
)
_NAME = re.compile(
    r"\s*[:#]\s*(?:full_?\s?name_?\s?with_?\s?scope:?\s*)?\((?P<name>[^<>\s]+)\)\s*", re.IGNORECASE
)
_UID = re.compile(r'[{ ]unique_id: "(\w+)"')
_FORWARD_UID = re.compile(r'forward_unique_id: "(\w+)"')
_ON_DEVICE = re.compile(
    r"<(?P<dtype>\w+?)x(?P<format>[A-Za-z]\w*)\[const vector\][\[{](?P<shape>[^\]}]*)[\]}]"
)
_ON_HOST = re.compile(
    r"<(?:Ref\[)?Tensor\[(?P<dtype>\w+)\]\]?(?:x\[const vector\]\[(?P<old>[^\]]*)\]|, \((?P<shape>[^()]*)\))?"
)
_SCALAR = re.compile(r"<(?P<dtype>\w+), NoShape")
_OPEN, _CLOSE = "([{<", ")]}>"
_SHARED = "<~~This line of code can be shared"


def read_ir(path: Path) -> Graph:
    """Read a file. Raises FormatError when it has no operator, OSError when it cannot be opened."""
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        graph = parse_ir(lines, str(path))
    if not graph.operators:
        raise FormatError(
            f"{path} has no operators in it. An .ir file that a dump wrote has lines like "
            "'%1(equiv_output) = Conv2D(%para1_x, %0) ...'; is this one?"
        )
    return graph


@define
class _OperatorLines:
    line: int
    head: str
    details: list[str] = field(factory=list)
    frames: list[Frame] = field(factory=list)
    gradient: bool = False

    def add(self, line: str) -> None:
        """Take a line after the head."""
        if line.startswith(("# In file ", "In file ")):
            self.frames.append(_frame(line))
        elif line.startswith("# Corresponding forward node candidate"):
            self.gradient = True
        elif line.startswith((":", "#")):
            self.details.append(line)
        elif not self.details:
            self.head += " " + line  # a constant's value may span several lines


def parse_ir(lines: Iterator[str], where: str = "the graph") -> Graph:
    """Parse the lines of a graph.

    where: names the graph in ``problems``, which list what is not understood.
    """
    operators: list[Operator] = []
    problems: list[str] = []
    for draft in _drafts(lines):
        try:
            operators.append(_operator(draft))
        except ValueError as error:
            problems.append(f"{where}:{draft.line}: an operator cannot be read: {error}.")
    return Graph(_with_own_lines(operators), tuple(problems))


def _drafts(lines: Iterator[str]) -> Iterator[_OperatorLines]:
    draft: _OperatorLines | None = None
    for number, line in enumerate(lines, start=1):
        begins = (" = " in line and _HEAD.match(line)) or _RETURN.match(line)
        stripped = line.strip()
        if begins or stripped == "}" or _SUBGRAPH.match(line):
            if draft is not None:
                yield draft
            draft = _OperatorLines(number, line.rstrip("\n")) if begins else None
        elif draft is not None:
            draft.add(stripped)
    if draft is not None:
        yield draft


def _with_own_lines(operators: list[Operator]) -> tuple[Operator, ...]:
    """Give operators the lines of their gradients.

    Where a Cell is called on several lines, MindSpore gives all its operators the lines of one call ("can be shared by
    multiple nodes"). Their gradients have the right lines, and the id of the operator that they belong to.
    """
    lines = {op.forward_uid: op.frames for op in reversed(operators) if op.forward_uid and op.frames}
    ours = (lines.get(op.uid) if not op.forward_uid else None for op in operators)
    return tuple(evolve(op, frames=found) if found else op for op, found in zip(operators, ours, strict=True))


@lru_cache(10_000)  # the lines of a call are there once for each of its operators
def _frame(text: str) -> Frame:
    match = _FRAME.fullmatch(text)
    if match is None:
        return Frame(text.removeprefix("# In file "), 0, 0, "")
    line = int(match["old"] or match["line"])
    code = match["text"].split(_SHARED)[0].rstrip().removesuffix("/")
    return Frame(match["file"], line, int(match["end"] or line), code)


def _operator(draft: _OperatorLines) -> Operator:
    match = _HEAD.match(draft.head)
    start = match.end() if match else draft.head.index("(") + 1
    op = match["op"].strip() if match else "Return"
    full_name = ""
    host: Sides | None = None
    device: Sides = ((), ())
    for detail in draft.details:
        if "<" in detail and detail.startswith(":"):
            sides = _sides_of(detail)
            if any(one.format for side in sides for one in side):
                device = sides
            elif host is None:
                host = sides
        elif (name := _NAME.fullmatch(detail)) is not None and ("/" in name["name"] or "-op" in name["name"]):
            full_name = name["name"]
    inputs, outputs = host or ((), ())
    return Operator(
        ref=match["ref"] if match else "",
        op=op.removeprefix("PrimFunc_").removeprefix("DoSignaturePrimitive::S-Prim-"),
        full_name=full_name,
        args=tuple(_pieces(draft.head, start)),
        inputs=inputs,
        outputs=outputs,
        device_inputs=device[0],
        device_outputs=device[1],
        frames=tuple(draft.frames),
        gradient=draft.gradient or full_name.startswith("Gradients/"),
        line=draft.line,
        uid="".join(_UID.findall(draft.head)[:1]),
        forward_uid="".join(_FORWARD_UID.findall(draft.head)[:1]),
    )


def _pieces(text: str, start: int) -> Iterator[str]:
    """Yield the pieces between commas from ``start`` (after a bracket) to the bracket that closes it."""
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


def _sides_of(detail: str) -> Sides:
    """Return inputs and outputs of ``: (<A>, <B>) -> (<C>)``. MindSpore 1.5 has ``(<A>) -> (<B>) -> (<C>)`` too."""
    groups: list[tuple[Type, ...]] = []
    at = detail.find("(")
    while at >= 0:
        found = list(_pieces(detail, at + 1))
        groups.append(tuple(_type(piece) for piece in found))
        arrow = detail.find(") -> (", at)
        while arrow >= 0 and detail.count("(", at, arrow) != detail.count(")", at, arrow) + 1:
            arrow = detail.find(") -> (", arrow + 1)
        at = -1 if arrow < 0 else arrow + 5
    if not groups:
        raise ValueError(f"no types in {detail[:60]!r}")
    if len(groups) == 1:  # the operator Return has no outputs
        return groups[0], ()
    return tuple(one for group in groups[:-1] for one in group), groups[-1]


def _type(text: str) -> Type:
    if match := _ON_DEVICE.match(text):
        return Type(text, match["dtype"], _shape_of(match["shape"]), match["format"])
    if match := _ON_HOST.match(text):
        return Type(
            text, match["dtype"], _shape_of(match["old"] if match["shape"] is None else match["shape"])
        )
    if match := _SCALAR.match(text):
        return Type(text, match["dtype"])
    return Type(text)


def _shape_of(text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        return None
