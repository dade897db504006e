"""Find functions that got the same arguments on several ranks, and divide these ranks by what the function returned.

They should have returned the same. Only ranks that are read at once, as one `RankBlock`, are compared.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from probe_analysis.calls.compact_run import RecordForm
from probe_analysis.calls.run import Call
from probe_analysis.compare.level import LIMITS, own_level

from .expected import Expected, draws, in_update, moves
from .held import all_of, bits_of, lowest, ranks_in
from .sheet import Layout, Sheet, parts_in
from .side_by_side import collective

_TENSORS = ("torch.Tensor", "mindspore.Tensor")
#: A sheet, rows of it as bits, and the columns of a call's results.
_Where = tuple[Sheet, int, Sequence[int]]


def computed(sheets: Sequence[Sheet]) -> Iterator[tuple[Call, Expected]]:
    """Yield the results of each function on the ranks that gave it the same arguments, to be compared."""
    same: dict[Hashable, list[_Where]] = {}
    taken = [_taken(sheet) for sheet in sheets]
    every = np.concatenate([np.zeros(0, "uint64"), *(each.ravel() for each in taken)])
    codes, counts = np.unique(every, return_counts=True)
    for sheet, each in zip(sheets, taken, strict=True):
        for key, where in _given(sheet, each * np.isin(each, codes[counts > 1])):
            same.setdefault(key, []).append(where)
    for found in same.values():
        yield from _results(found)


def _taken(sheet: Sheet) -> npt.NDArray[np.uint64]:
    """Return row x function: a code of the tensors that it was given; 0 where nothing tells them."""
    asking, columns, starts, factors = _asking(sheet.runs[0].calls, sheet.layout)
    if not asking:
        return np.zeros((len(sheet.runs), 0), "uint64")
    codes = np.add.reduceat(sheet.codes[:, columns] * factors, starts, axis=1) | np.uint64(1)
    return codes * np.logical_and.reduceat(sheet.trusted(columns), starts, axis=1)


def _given(sheet: Sheet, taken: npt.NDArray[np.uint64]) -> Iterator[tuple[Hashable, _Where]]:
    """Yield what functions were given on the ranks, and where their results are.

    taken: as `_taken` returns it, with 0 where no other rank gave the same.
    """
    asking, *_ = _asking(sheet.runs[0].calls, sheet.layout)
    for n, ((call, results), parts) in enumerate(zip(asking, parts_in(taken), strict=True)):
        forms = [run.forms[call.order] for run in sheet.runs] if parts else []
        for part in parts:
            rows, code = ranks_in(part), int(taken[lowest(part), n])
            for form in dict.fromkeys(forms[row] for row in rows):
                if _asks(call, form):
                    some = bits_of(row for row in rows if forms[row] is form)
                    yield (call.name, code, _said(form)), (sheet, some, results)


_Asking = tuple[list[tuple[Call, list[int]]], list[int], list[int], npt.NDArray[np.uint64]]


@lru_cache(maxsize=4)
def _asking(calls: tuple[Call, ...], layout: Layout) -> _Asking:
    """Return the functions that take tensors, each with the columns of its results; and of their inputs:

    the columns of all in one list, where the inputs of each function begin in it, and a factor for each input, by its
    place in its function.
    """
    found, columns, starts, factors = [], list[int](), list[int](), list[int]()
    for call in filter(_may_agree, calls):
        taken = [n for n in layout.of_record[call.order] if layout.places[n][2] == "in"]
        if taken:
            found.append((call, [n for n in layout.of_record[call.order] if layout.places[n][2] == "out"]))
            starts.append(len(columns))
            columns += taken
            factors += range(1, 2 * len(taken), 2)
    return found, columns, starts, np.array(factors, "uint64")


def _may_agree(call: Call) -> bool:
    return not (call.kind != "api" or call.backward or collective(call) or draws(call) or in_update(call))


@lru_cache(maxsize=1024)
def _asks(call: Call, form: RecordForm) -> bool:
    """Return whether a function must return the same wherever it takes tensors with the same marks.

    Not where a tensor is of another class, as its values may come later. Without checksums, the elements of a tensor
    may be in another order. Where one such tensor meets weights, the results mostly have other orders only; but
    elements of two such tensors may meet in another way, and a function that cuts may take other elements.
    """
    took = [(slot, tensor, rest) for slot, side, tensor, _, rest in form.tensors if side == "in"]
    if not took or not all(tensor.get("type") in _TENSORS for _, tensor, _ in took):
        return False
    data = [slot for slot, _, rest in took if "md5" not in rest and not call.role(slot)]
    return not data or (len(data) == 1 and not moves(call))


@lru_cache(maxsize=1024)
def _said(form: RecordForm) -> str:
    """Return as text all that a function is given but the numbers of tensors."""
    took = [(x[0], x[2]["shape"], x[2]["dtype"]) for x in form.tensors if x[1] == "in"]
    return repr((sorted(took, key=repr), form.others))


def _results(found: Sequence[_Where]) -> Iterator[tuple[Call, Expected]]:
    sheet, rows, columns = found[0]
    if not columns or (len(found) == 1 and rows.bit_count() < 2):
        return
    run = sheet.runs[lowest(rows)]
    own = run.calls[sheet.layout.places[columns[0]][0]]
    for n, column in enumerate(columns):
        slot = sheet.layout.places[column][1]
        held: dict[int, list[tuple[int, Sheet, int, int]]] = {}
        for other, among, others in found:
            if n < len(others) and other.layout.places[others[n]][1] == slot:
                for part in other.parts[others[n]]:
                    if some := part & among:
                        code = int(other.codes[lowest(some), others[n]])
                        held.setdefault(code, []).append((other.ranks(some), other, lowest(some), others[n]))
        ranks = {code: all_of(bits for bits, *_ in parts) for code, parts in held.items()}
        if all_of(ranks.values()).bit_count() < 2:
            continue
        several = len(held) > 1
        level = own_level(value.tensor for value in run.read(own).values) if several else 0.0
        firsts = ((code, parts[0]) for code, parts in held.items())
        each = {ranks[code]: at.tensor(*place) if several else None for code, (_, at, *place) in firsts}
        yield own.of(run.rank), Expected("computed", slot, each, LIMITS["forward"] * level)
