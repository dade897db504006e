"""Build and parse the names of records and of construct.json's nodes, and build tensor files' names (spec/names.md).

A record's or node's name round-trips. That of a tensor file is not parsed: it may end in a hash.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal

from attrs import frozen

from .errors import FormatError
from .excerpts import brief
from .jsonio import inert, meant

Direction = Literal["forward", "backward"]
_DIRECTIONS = ("forward", "backward")
_Moment = Literal["parameters_grad", "optimizer_grad"]
#: The nodes of construct.json that are no records: what is computed in them belongs to no module.
OPTIMIZER = "optimizer"
CLIP_GRAD = "clip_grad"
#: How the names of calls that get something from other ranks begin.
BETWEEN_RANKS = ("Distributed.", "MintDistributed.")


@frozen
class ApiName:
    """Name an API call: ``{prefix}.{api}.{count}.{direction}``, as ``Functional.linear.3.forward``."""

    prefix: str
    api: str
    count: int
    direction: Direction

    def __str__(self) -> str:
        return f"{self.prefix}.{self.api}.{self.count}.{self.direction}"


@frozen
class ModuleName:
    """Name a module call's record: ``{Module|Cell}.{path}.{class}.{direction}.{count}``.

    path: the module's qualified name, with an index in front if any.
    """

    prefix: str
    path: str
    cls: str
    direction: Direction
    count: int

    def __str__(self) -> str:
        return f"{self.prefix}.{self.path}.{self.cls}.{self.direction}.{self.count}"


@frozen
class ParamsGradName:
    """Name the record of parameter gradients: ``{Module|Cell}.{path}.{class}.parameters_grad``.

    This form is the first arrival in a step. Later arrivals have their count, from 1; msprobe 26 counts the
    first as 0.

    moment: ``parameters_grad``, or ``optimizer_grad`` of those that an optimizer's step gets.
    """

    prefix: str
    path: str
    cls: str
    count: int | None = None
    moment: _Moment = "parameters_grad"

    def __str__(self) -> str:
        tail = "" if self.count is None else f".{self.count}"
        return f"{self.prefix}.{self.path}.{self.cls}.{self.moment}{tail}"


@frozen
class DebugName:
    """Name the record of a value saved by name, or of its gradients: ``{name}[_grad].{count}.debug``.

    count: from 0 in each step.
    """

    name: str
    count: int

    def __str__(self) -> str:
        return f"{inert(self.name)}.{self.count}.debug"


@frozen
class NodeName:
    """Name a node of construct.json that is not a record: ``optimizer``, ``clip_grad``."""

    node: str

    def __str__(self) -> str:
        return self.node


Name = ApiName | ModuleName | ParamsGradName | DebugName | NodeName


_MODULE = r"(Module|Cell)\.(.*)\.([^.]*)"
_COUNT = "(0|[1-9][0-9]{0,17})"  # "007" would not round-trip; more calls than any run makes, int() refuses 5000 digits
#: The pattern of each form of name, and the function that makes the name of its matched parts.
_FORMS: tuple[tuple[re.Pattern[str], Callable[..., Name]], ...] = tuple(
    (re.compile(form, re.DOTALL), make)
    for form, make in (
        (rf"([^.]*)\.(.*)\.{_COUNT}\.(forward|backward)", lambda *m: ApiName(m[0], m[1], int(m[2]), m[3])),
        (
            rf"{_MODULE}\.(forward|backward)\.{_COUNT}",
            lambda p, at, c, way, n: ModuleName(p, at, c, way, int(n)),
        ),
        (
            rf"{_MODULE}\.(parameters_grad|optimizer_grad)(?:\.{_COUNT})?",
            lambda p, at, c, moment, n: ParamsGradName(p, at, c, n and int(n), moment),
        ),
        (rf"(.*)\.{_COUNT}\.debug", lambda name, count: DebugName(meant(name), int(count))),
        (f"({OPTIMIZER}|{CLIP_GRAD})", NodeName),
    )
)


def parsed(text: str) -> Name | None:
    """Return the structured form of a record name; None for any other text.

    Its ``str`` is ``text`` again, except where msprobe saved a value under a name that a spreadsheet
    takes for a formula.
    """
    for form, make in _FORMS:
        if found := form.fullmatch(text):
            return make(*found.groups())
    return None


def parse_name(text: str) -> Name:
    """Return the same as `parsed`. Raises FormatError when ``text`` is not a name that Probe or msprobe writes."""
    found = parsed(text)
    if found is None:
        raise FormatError(
            f"{brief(text)} is not a record name. Expected e.g. 'Functional.linear.0.forward', "
            "'Module.fc.Linear.backward.0', 'Module.fc.Linear.parameters_grad' or 'loss.0.debug'."
        )
    return found


def with_direction(name: str, direction: Direction) -> str:
    """Return the name of the forward, or of the backward, record of the same call.

    name: of either record; one without a direction (``optimizer``, ``loss.0.debug``) is returned unchanged.
    """
    # An API's name ends in the direction, a module's in the direction and a number.
    head, dot, last = name.rpartition(".")
    if dot and last in _DIRECTIONS:
        return f"{head}.{direction}"
    head, dot, middle = head.rpartition(".")
    return f"{head}.{direction}.{last}" if dot and middle in _DIRECTIONS else name


def as_optimizer_gets(parameters_grad: str) -> str:
    """Return the name of the record of the same gradients as an optimizer's step gets them."""
    return parameters_grad.removesuffix("parameters_grad") + "optimizer_grad"


def first_forward(parameters_grad: str) -> str:
    """Return the name of the first forward record of the module that has this ``parameters_grad`` record."""
    return parameters_grad.removesuffix(".parameters_grad") + ".forward.0"


def tensor_file_name(record: str, category: str, indexes: Sequence[int | str], suffix: str) -> str:
    """Return ``{record}.{category}.{index}....{suffix}``, safe on every file system.

    record: the name of the record.
    category: ``input``, ``kwargs``, ``output`` or ``parameters``; empty for ``parameters_grad`` and
    ``debug`` records.
    indexes: the keys and indexes that lead to the tensor.
    suffix: ``pt`` or ``npy``.
    """
    head = f"{record}.{category}" if category else record
    place = ".".join(map(str, indexes))
    # {"a.b": x, "a": {"b": y}} has two places.
    if "\\" in place or ("." in place and place.count(".") >= len(indexes)):
        place = ".".join(str(index).replace("\\", "\\\\").replace(".", "\\.") for index in indexes)
    text = f"{head}.{place}.{suffix}" if indexes else f"{head}.{suffix}"
    return text if _KEPT.fullmatch(text) else safe_file_name(text)


_UNSAFE = re.compile("[^A-Za-z0-9._-]")
#: The length of a file's name that every file system takes.
MAX_BYTES = 255
#: The names that are file names as they are: of these characters, not of dots alone, and without a hash.
_KEPT = re.compile(rf"(?!\.*$|.*-[0-9a-f]{{20}}(?:\.|$))[A-Za-z0-9._-]{{1,{MAX_BYTES}}}")


def safe_file_name(text: str) -> str:
    """Return ``text`` where it is a safe file name, else a readable form that ends in a hash of ``text``.

    At most 255 bytes, no separators, no control characters, never ``.`` or ``..``; the last suffix
    (``.pt``) is kept. Two different texts give two different names: no name that is kept has a hash.
    msprobe opens files of just these characters.
    """
    if _KEPT.fullmatch(text):
        return text
    import hashlib  # it loads OpenSSL, which reading a dump does without

    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
    stem, dot, suffix = text.rpartition(".")
    if not dot or len(suffix) > 8 or _UNSAFE.search(suffix):
        stem, suffix = text, ""
    clean = _UNSAFE.sub("_", stem)
    tail = f"-{digest}" + (f".{suffix}" if suffix else "")
    return clean[: MAX_BYTES - len(tail)] + tail


# msprobe 1.2 writes only the name and the count; "tensor" is only in its file names.
_DEBUG_NAME = re.compile(rf"(.+)\.{_COUNT}(?:\.(?:debug|tensor))?", re.DOTALL)


def parse_debug_name(text: str) -> DebugName:
    """Parse a debug.json's record name: ``x.0.debug``, or ``x.0`` or ``x.0.tensor`` as in msprobe 1.2.

    Raises FormatError when it has none of these forms.
    """
    found = _DEBUG_NAME.fullmatch(text)
    if found is None:
        raise FormatError(f"{brief(text)} is not the name of a saved value; 'loss.0.debug' would be.")
    return DebugName(meant(found[1]), int(found[2]))
