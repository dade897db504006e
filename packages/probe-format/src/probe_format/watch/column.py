"""Name a column of a watch file: whose norm it is."""

from __future__ import annotations

from typing import Literal, get_args

from attrs import frozen

MAGIC = b"PROBEW1\n"
VERSION = "1.0"
Kind = Literal["gradients", "weights", "moments", "updates", "activations"]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: The number of a column that has none in a step.
ABSENT = -1.0


@frozen
class Column:
    """Name what a number is of.

    layer: the qualified name of the module. what: the tensor in it, as ``weight`` or ``output.0``.
    elements: how many it had when it was named.
    """

    kind: Kind | Literal["?"]
    layer: str
    what: str
    elements: int

    @property
    def name(self) -> str:
        """Return layer and tensor, as ``blocks.0.up.weight``."""
        return f"{self.layer}.{self.what}" if self.layer else self.what
