"""Model MindSpore's graph: operators, their types, and the script's lines that made them.

`ir_text` reads it from the text that MindSpore writes of a graph.
"""

import re
from functools import cached_property

from attrs import frozen

_BLOCK = re.compile(
    r"\s*(?:@|async\s|(?:def|class|if|elif|else|for|while|with|try|except|finally|match|case)\b)"
)


@frozen
class Frame:
    """Locate a line of the script.

    line, end: from 1; end is line where the expression has only one.
    text: the first line's code.
    """

    file: str
    line: int
    end: int
    text: str

    def covers(self, line: int) -> bool:
        """Return whether this frame contains the line: a block (def, if, for, ...) its first line, a call any line."""
        return line == self.line if _BLOCK.match(self.text) else self.line <= line <= self.end


@frozen
class Type:
    """Describe one input or output.

    text: as in the file.
    dtype: ``Float32``, ...; empty where the value is neither a tensor nor a number.
    shape: None where the value has none; -1 is a dimension that varies.
    format: the layout, on the device.
    """

    text: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    format: str = ""


@frozen
class Operator:
    """Describe one node of the graph.

    ref: its name in the file.
    op: its type.
    full_name: with scope, as ``Default/conv1-Conv2d/Conv2D-op0``.
    args: the arguments, as ``%3``, ``%para1_x``, or the text of a constant.
    inputs, outputs: types on the host.
    device_inputs, device_outputs: types on the device; empty for nodes that are not kernels (Load, MakeTuple, ...).
    frames: the script's lines, outermost first.
    gradient: whether it computes a gradient; its lines are then those of the forward operator.
    line: in the .ir file.
    uid, forward_uid: MindSpore's ids of the operator, and of the one that it is the gradient of; may be empty.
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
        """Return whether it is executed as a kernel, so that there can be files."""
        return bool(self.device_inputs or self.device_outputs)

    def frame_at(self, file: str, line: int) -> Frame | None:
        """Return the innermost of its frames that is a line of a script; None where it has none. See `Graph.at`."""
        wanted = path_parts(file)
        for frame in reversed(self.frames):
            if frame.covers(line) and path_parts(frame.file)[-len(wanted) :] == wanted:
                return frame
        return None


@frozen(slots=False)
class Graph:
    """Hold the operators of a graph. problems: operators that could not be understood, in sentences."""

    operators: tuple[Operator, ...]
    problems: tuple[str, ...] = ()

    def at(self, file: str, line: int) -> tuple[Operator, ...]:
        """Return the operators that a line of the script made, in order. file: a path, or the end of one."""
        return tuple(operator for operator in self.operators if operator.frame_at(file, line))

    def scope_of(self, operator: Operator) -> str:
        """Return the full name that has the Cells around an operator; for a gradient, its forward operator's name.

        A gradient's own name can have the wrong Cell: the second BiasAddGrad of a net is often called after the layer
        of the first.
        """
        return self._by_uid.get(operator.forward_uid, operator.full_name)

    @cached_property
    def _by_uid(self) -> dict[str, str]:
        return {op.uid: op.full_name for op in self.operators if op.uid and not op.forward_uid}

    def shared(self, operator: Operator) -> int:
        """Return how many other operators of its type have all the same lines, so that these may be another call's.

        For a gradient, and for an operator that has a gradient, this is 0: its lines are right.
        """
        if operator.gradient or operator.uid in self._with_gradient:
            return 0
        alike = ((o.op, o.frames) == (operator.op, operator.frames) for o in self.operators if not o.gradient)
        return sum(alike) - 1

    @cached_property
    def _with_gradient(self) -> frozenset[str]:
        return frozenset(op.forward_uid for op in self.operators if op.forward_uid)

    @property
    def files(self) -> tuple[str, ...]:
        """Return every script with a line that made an operator."""
        return tuple(dict.fromkeys(frame.file for op in self.operators for frame in op.frames))


def path_parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.replace("\\", "/").split("/") if part not in ("", "."))
