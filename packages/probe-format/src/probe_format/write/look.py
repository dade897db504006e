"""Note, as the records of a step are written to dump.json, which hold values that are not finite, and the norms of
parameters' gradients: these decide whether the step is worth keeping.
"""

from collections.abc import Iterator

from attrs import define, field

from probe_format import jsonio
from probe_format.journal.pages import HOLE, Pages
from probe_format.names import ParamsGradName, parsed
from probe_format.schema.finite import Suspect, suspect_of
from probe_format.schema.parts import parts_of

# Inside JSON strings the quotes are escaped, so only keys match. A tensor has all counts of `BROKEN`, or none.
_NON_FINITE, _KNOWN, _LOST = b'"nan_count":', b'"Max":', b'"lost":'


@define
class Look:
    """Hold what was seen when the records of a step were written last.

    Only the lines of records that matter are parsed: those with a value that is not finite, and the gradients of
    parameters that are asked for.

    moments: which gradients of parameters are wanted: ``parameters_grad``, ``optimizer_grad``.
    suspects: the records with a value that is not finite, in their order.
    norms: moment -> (module, parameter) -> the norm of its gradient; of several that arrived, of the last.
    records: how many there are.
    known: how many blocks of their lines have numbers in them.
    lost: whether something in them is lost.
    """

    moments: frozenset[str] = frozenset()
    suspects: list[Suspect] = field(factory=list)
    norms: dict[str, dict[tuple[str, str], float]] = field(factory=dict)
    records: int = 0
    known: int = 0
    lost: bool = False

    def through(self, pages: Pages) -> Iterator[bytes]:
        """Yield the lines of all records, their holes filled; what was seen before is forgotten."""
        self.suspects, self.norms = [], {moment: {} for moment in self.moments}
        self.records, self.known, self.lost = 0, 0, False
        for lines in pages.records:
            whole = pages.filled(lines) if HOLE in lines else lines
            self._see(whole)
            yield whole

    def _see(self, lines: bytes) -> None:
        self.known += _KNOWN in lines
        self.lost |= _LOST in lines
        wanted = [b".%b" % moment.encode() for moment in self.moments if b".%b" % moment.encode() in lines]
        # Each line follows a comma and a line break, as "name": value.
        each = lines.split(b"\n")[1:]
        if wanted or _NON_FINITE in lines:
            for i, line in enumerate(each):
                is_gradient = any(moment in line.partition(b'": ')[0] for moment in wanted)
                if is_gradient or _NON_FINITE in line:
                    self._parse(self.records + i, line.rstrip(b","), is_gradient=is_gradient)
        self.records += len(each)

    def _parse(self, order: int, line: bytes, *, is_gradient: bool) -> None:
        for name, record in jsonio.loads(b"{%b}" % line).items():
            parts = parts_of(record)
            suspect = suspect_of(name, order, parts)
            if suspect is not None:
                self.suspects.append(suspect)
            of = parsed(name) if is_gradient else None
            if isinstance(of, ParamsGradName) and (found := self.norms.get(of.moment)) is not None:
                for value in parts.values:
                    norm = jsonio.number(value.tensor.get("Norm"))
                    if isinstance(norm, int | float):
                        found[f"{of.path}.{of.cls}", value.slot.rpartition(".")[0]] = float(norm)
