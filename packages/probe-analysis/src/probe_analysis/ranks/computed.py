"""Find functions that return something else for the same arguments, among ranks that are read together."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from probe_analysis.calls.compact_run import RecordForm
from probe_analysis.calls.run import Call
from probe_analysis.compare.level import LIMITS, own_level

from .expected import Expected, draws, in_update
from .rows import collective
from .sheet import Layout, Sheet

_TENSORS = ("torch.Tensor", "mindspore.Tensor")
#: A sheet, a row of it, and the columns of a call's results.
_Where = tuple[Sheet, int, Sequence[int]]


def computed(sheets: Sequence[Sheet]) -> Iterator[tuple[Call, Expected]]:
    """Yield the results of a function on the ranks that gave it the same arguments."""
    same: dict[Hashable, list[_Where]] = {}
    taken = [_taken(sheet) for sheet in sheets]
    every = np.concatenate([np.zeros(0, "uint64"), *(each.ravel() for each in taken)])
    codes, counts = np.unique(every, return_counts=True)
    for sheet, each in zip(sheets, taken, strict=True):
        for key, where in _given(sheet, each * np.isin(each, codes[counts > 1])):
            same.setdefault(key, []).append(where)
    for found in same.values():
        if len(found) > 1:
            yield from _results(found)


def _taken(sheet: Sheet) -> npt.NDArray[np.uint64]:
    """Return row x function: what tells apart what it was given; 0 where nothing does."""
    asking, columns, starts, factors = _asking(sheet.runs[0].calls, sheet.layout)
    if not asking:
        return np.zeros((len(sheet.runs), 0), "uint64")
    codes = np.add.reduceat(sheet.codes[:, columns] * factors, starts, axis=1) | np.uint64(1)
    return codes * np.logical_and.reduceat(sheet.trusted[:, columns], starts, axis=1)


def _given(sheet: Sheet, taken: npt.NDArray[np.uint64]) -> Iterator[tuple[Hashable, _Where]]:
    """Yield what functions were given on each rank, and where their results are. taken: 0 where that need not be."""
    asking, *_ = _asking(sheet.runs[0].calls, sheet.layout)
    for n, row in np.argwhere(taken.T).tolist():
        (call, results), form = asking[n], sheet.runs[row].forms[asking[n][0].order]
        if _asks(form):
            yield (call.name, int(taken[row, n]), _said(form)), (sheet, row, results)


_Asking = tuple[list[tuple[Call, list[int]]], list[int], list[int], npt.NDArray[np.uint64]]


@lru_cache(maxsize=8)
def _asking(calls: tuple[Call, ...], layout: Layout) -> _Asking:
    """Return the functions that take tensors, each with the columns of its results, and the columns of what they take:

    all in one list, where those of each begin, and a factor for each, by its place.
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
def _asks(form: RecordForm) -> bool:
    """Return whether a function takes tensors, all with their values: None has values that come later, or is a view."""
    took = [tensor for _, side, tensor, *_ in form.tensors if side == "in"]
    return bool(took) and all(tensor.get("type") in _TENSORS for tensor in took)


@lru_cache(maxsize=1024)
def _said(form: RecordForm) -> str:
    """Return all that a function is given but the numbers of tensors."""
    took = [(x[0], x[2]["shape"], x[2]["dtype"]) for x in form.tensors if x[1] == "in"]
    return repr((sorted(took, key=repr), form.others))


def _results(found: Sequence[_Where]) -> Iterator[tuple[Call, Expected]]:
    sheet, row, columns = found[0]
    if not columns:
        return
    run = sheet.runs[row]
    own = run.calls[sheet.layout.places[columns[0]][0]]
    call = own.of(run.rank)
    for n, column in enumerate(columns):
        slot = sheet.layout.places[column][1]
        held: dict[int, tuple[int, object]] = {}
        for other, at, others in found:
            code = int(other.codes[at, others[n]]) if n < len(others) else 0
            if code and other.layout.places[others[n]][1] == slot:
                bits, tensor = held.get(code, (0, None))
                held[code] = bits | other.bits[at], tensor or other.tensor(at, others[n])
        if sum(bits.bit_count() for bits, _ in held.values()) > 1:
            level = own_level(value.tensor for value in run.read(own).values) if len(held) > 1 else 0.0
            yield call, Expected("computed", slot, dict(held.values()), LIMITS["forward"] * level)
