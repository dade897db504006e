"""Hold what is known of a call under way."""

from __future__ import annotations

from typing import Any

from attrs import define

__all__ = ["Call"]


@define
class Call:
    """One call under way.

    key: the record names without number and direction; faults are counted by it.
    name: the name of its forward record.
    backward: the name of its backward record.
    parent: the (forward name, backward name) of the module or node that it is made in; None at the top.
    recorded: whether anything of it is recorded.
    forward: whether its forward record is kept.
    edges: what the gradient taps remember of its inputs.
    redo: whether it is recomputed.
    keep_files: whether its tensors are written to files.
    form: the form of its arguments in the backward record; once the call has ended, the forms of that record's
        ``input`` and ``output``.
    """

    key: str
    name: str
    backward: str
    parent: tuple[str, str] | None
    recorded: bool
    forward: bool
    edges: Any = None
    redo: bool = False
    keep_files: bool = False
    form: Any = None
