"""Read the norms of every optimizer update: of gradients, weights, moments, and of what the update changed."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from attrs import define, field
from probe_format.watch import Column
from probe_runtime.watch import Columns, Norms, ParameterNames, WatchedRow

from .norms import changes_of, local, norms_of

_copy: Any = torch._foreach_copy_


@define(eq=False)
class OptimizerColumns:
    """Hold the column numbers of one optimizer's parameters, as long as these stay the same.

    ids: ids of the parameters.
    names: (layer, name) of each.
    gradients, weights: the column number of each.
    copies: the weights before the update, where it is recorded what updates change.
    is_copied: whether the copies hold the weights as the last update left them.
    """

    optimizer: weakref.ref[Any]
    ids: list[int]
    names: list[tuple[str, str]]
    gradients: list[int]
    weights: list[int]
    copies: list[Any] = field(factory=list)
    is_copied: bool = False
    _moments: dict[tuple[int, str], int] = field(factory=dict)
    _updates: list[int] = field(factory=list)

    @classmethod
    def of(
        cls, optimizer: Any, parameters: list[Any], names: ParameterNames, columns: Columns
    ) -> OptimizerColumns:
        """Number the columns of an optimizer's gradients and weights, named after the parameters."""
        kind = type(optimizer).__name__
        groups = [
            f"{g}.{i}" for g, group in enumerate(optimizer.param_groups) for i in range(len(group["params"]))
        ]
        own = [name or (kind, place) for name, place in zip(names.of(parameters), groups, strict=True)]
        gradients, weights = (
            [columns.number(Column(what, *name, p.numel())) for name, p in zip(own, parameters, strict=True)]
            for what in ("gradients", "weights")
        )
        return cls(weakref.ref(optimizer), list(map(id, parameters)), own, gradients, weights)

    def moments(self, optimizer: Any, parameters: list[Any], columns: Columns) -> Iterator[tuple[int, Any]]:
        """Yield (column number, tensor) of each float tensor of the optimizer's state, but for counts of steps."""
        for i, p in enumerate(parameters):
            for key, value in (optimizer.state.get(p) or {}).items():
                if not isinstance(value, torch.Tensor) or key == "step" or not value.is_floating_point():
                    continue
                number = self._moments.get((i, key))
                if number is None:
                    layer, name = self.names[i]
                    column = Column("moments", layer, f"{name}.{key}", value.numel())
                    number = self._moments[i, key] = columns.number(column)
                yield number, value

    def copy(self, parameters: list[Any]) -> None:
        """Copy the weights before an update, unless the copies hold them already, as the last update left them."""
        if self.is_copied:
            return
        own = [t for p in parameters if (t := local(p)) is not None]
        if not self.copies:
            self.copies = [torch.empty_like(p, requires_grad=False) for p in own]
        _copy(self.copies, own)
        self.is_copied = True

    def changed(self, parameters: list[Any], columns: Columns) -> tuple[list[int], Norms]:
        """Return the column numbers and the norms of how the weights differ from the copies, and copy them anew."""
        own = [local(p) for p in parameters]
        if not self._updates:
            known = zip(self.names, parameters, own, strict=True)
            some = [Column("updates", *name, p.numel()) for name, p, t in known if t is not None]
            self._updates = [*map(columns.number, some)]
        return self._updates, changes_of([t for t in own if t is not None], self.copies)


@define(eq=False)
class Updates:
    """Read every optimizer's updates.

    wants_moments, wants_updates: whether moments, and what updates changed, are read too.
    """

    columns: Columns
    names: ParameterNames
    wants_moments: bool = False
    wants_updates: bool = False
    _known: dict[int, OptimizerColumns] = field(factory=dict)

    def before(self, optimizer: Any, row: WatchedRow, *, has_closure: bool = False) -> None:
        """Put the norms of what an update gets into ``row``: of gradients, weights and moments, read in one pass.

        has_closure: whether a closure computes the gradients during the update; then `after` reads them.
        """
        parameters = _parameters(optimizer)
        own = self._columns_of(optimizer, parameters)
        gradients = [None if has_closure else p.grad for p in parameters]
        numbers = [n for n, grad in zip(own.gradients, gradients, strict=True) if grad is not None]
        tensors = [grad for grad in gradients if grad is not None]
        given = len(tensors)
        numbers += own.weights
        tensors += parameters
        if self.wants_moments:
            for number, moment in own.moments(optimizer, parameters, self.columns):
                numbers.append(number)
                tensors.append(moment)
        # An optimizer that unscales by itself is told by these (GradScaler, with fused=True).
        told = [getattr(optimizer, name, None) for name in ("grad_scale", "found_inf")]
        scalars = [one for one in told if isinstance(one, torch.Tensor)]
        norms = norms_of([*tensors, *scalars])
        values, bad = norms.values[: len(tensors)], norms.bad
        extra = iter(norms.values[len(tensors) :].tolist())
        scale, overflow = (next(extra) if isinstance(one, torch.Tensor) else None for one in told)
        if overflow:  # the gradients are left out, and the scaler is asked how many updates it skipped
            numbers, values = numbers[given:], values[given:]
            bad = {place - given: counts for place, counts in bad.items() if place >= given}
        elif scale:
            values[:given] /= scale
        row.put(numbers, Norms(values, bad))
        row.updates += not overflow
        if self.wants_updates:
            own.copy(parameters)

    def after(self, optimizer: Any, row: WatchedRow | None, *, has_closure: bool = False) -> None:
        """Put the norms of what an update has changed into ``row``.

        row: the row of the step; None where the step is not watched.
        has_closure: whether a closure has computed the gradients, so that they are read too.
        """
        own = self._known.get(id(optimizer))
        if own is None or not (own.is_copied or has_closure):
            return
        parameters = _parameters(optimizer)
        if row is None or own.ids != list(map(id, parameters)):
            own.is_copied = False
            return
        if has_closure:
            found = [
                (n, p.grad) for n, p in zip(own.gradients, parameters, strict=True) if p.grad is not None
            ]
            row.put([n for n, _ in found], norms_of([grad for _, grad in found]))
        if own.is_copied:
            row.put(*own.changed(parameters, self.columns))

    def _columns_of(self, optimizer: Any, parameters: list[Any]) -> OptimizerColumns:
        known = self._known.get(id(optimizer))
        if known is None or known.optimizer() is not optimizer or known.ids != list(map(id, parameters)):
            known = OptimizerColumns.of(optimizer, parameters, self.names, self.columns)
            self._known = {k: v for k, v in self._known.items() if v.optimizer() is not None}
            self._known[id(optimizer)] = known
        return known


def _parameters(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]
