"""Record parameters' gradients when they arrive in ``.grad`` and, if asked for, as an optimizer's step gets them."""

import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from attrs import define, field
from probe_runtime.collect import Collector, TrackedParameter, faults_reported, guarded

from probe_torch.aside import apart, aside
from probe_torch.optimizer_hooks import KEYS
from probe_torch.training_threads import others_set_gradients, others_train

from .modules import ModuleTable
from .updates import before_updates

_CONSUMED = "it came, and a hook of the run took it from .grad before Probe was called"
_LENT = (
    "the step began within functional_call, which lends modules other parameters; theirs were not seen since"
)
_ELSEWHERE = "another thread trained, and may have been setting them"


#: In place of a gradient's mark while another thread may be setting ``.grad``: torch does so without Python's lock,
#: and whoever reads ``.grad`` at that moment may read freed memory.
_UNREAD = ("not read",)


class _HookTable(OrderedDict[int, Any]):
    """The hooks on a parameter that had none."""


#: Address of torch's C++ tensor -> a table of hooks that torch still calls, though it is gone from the parameter. It
#: is used again, as a new table would make torch free what holds the old one, perhaps while another thread's backward
#: pass is about to call it.
_tables: dict[int, weakref.ref[_HookTable]] = {}


@define
class _Hooked:
    """Describe one parameter's hook.

    entry: the parameter with its names.
    hooks: all hooks on it; ours is the first, as one of the run's own may consume the gradient.
    key: the key of our hook.
    before: the mark of its gradient when it was hooked; None if it had none, `_UNREAD` where that is not known.
    content: address of torch's C++ tensor behind the parameter when it was hooked. A swap gives the parameter
    another one, and the hook stays with the first.
    """

    entry: TrackedParameter
    hooks: OrderedDict[int, Any]
    key: int
    before: tuple[Any, ...] | None
    content: int

    @property
    def in_place(self) -> bool:
        return bool(self.entry.parameter._cdata == self.content)

    def remove(self, *, with_table: bool) -> None:
        """Remove the hook.

        with_table: whether to remove our table of hooks too, if it is empty: after a swap torch would put the user's
            hooks in it. While another thread trains the empty table stays, as after a hook of the user's is removed.
        """
        p = self.entry.parameter
        self.hooks.pop(self.key, None)
        if with_table and type(table := p._post_accumulate_grad_hooks) is _HookTable and not table:
            p._post_accumulate_grad_hooks = None


@define
class ParameterGradients:
    """Hook the parameters of one step, from start() until step().

    collector: gets the gradients.
    table: the modules whose parameters are hooked.
    missing: whether a parameter lost its hook since the last `hook`, because it was swapped.
    _overtaken: whether another thread was met that sets gradients, so that some may be missed.
    """

    collector: Collector
    table: ModuleTable
    missing: bool = False
    _overtaken: bool = False
    _hooked: dict[int, _Hooked] = field(factory=dict)

    def hook(self) -> None:
        """Hook every parameter of the table that has no hook, or whose hook a swap took to another tensor."""
        self.missing = False
        if not self.collector.plan.parameters_grad:
            return
        with aside():
            self._note_lent()
            wanting, alone = [], not others_train()
            self._overtaken = not alone and others_set_gradients()
            for entry in self.table.parameters():
                known = self._hooked.get(id(entry.parameter))
                if known is not None and not known.in_place:
                    self._hooked.pop(id(entry.parameter), known).remove(with_table=True)
                    known = None
                if known is None and entry.parameter.is_leaf:
                    wanting.append(entry)
            on_arrival = guarded("a parameter", "its gradient's arrival", self._on_arrival)
            for entry in wanting:  # a loop of its own: first every hook is removed that a swap took elsewhere
                p, key = entry.parameter, next(KEYS)
                hooks = p._post_accumulate_grad_hooks
                if hooks is None:
                    called = None if alone else _tables.get(p._cdata)
                    if called is None or (hooks := called()) is None:
                        hooks = p._post_accumulate_grad_hooks = _HookTable()
                        _tables[p._cdata] = weakref.ref(hooks)
                others = [*hooks]
                hooks[key] = on_arrival
                for other in others:  # torch calls them in this order
                    hooks[other] = hooks.pop(other)
                before: tuple[Any, ...] | None = _UNREAD
                if alone:
                    before = None if (grad := p.grad) is None else _mark(grad)
                self._hooked[id(p)] = _Hooked(entry, hooks, key, before, p._cdata)

    def _note_lent(self) -> None:
        modules = [entry.module for entry in list(self.table.entries.values())]
        if self.table.lent:
            self.table.begin()  # some have their own parameters again, which are hooked now
        self.table.lent = {id(module) for module in modules if _is_lent(module)}

    def let_go(self, t: torch.Tensor) -> None:
        """Remove the hook from ``t``, which is about to be swapped; the next `hook` puts it back."""
        known = self._hooked.pop(id(t), None)
        if known is not None:
            self.missing = True
            with aside():
                known.remove(with_table=True)

    def _on_arrival(self, p: torch.Tensor) -> None:
        if (known := self._hooked.get(id(p))) is not None:  # a step can end in another thread at any time
            with aside():
                if (grad := p.grad) is not None:
                    self.collector.parameter_gradient(known.entry, grad)
                    return
            for record, name in known.entry.owners:
                self.collector.coverage.unseen(f"{record}: gradient of {name}", _CONSUMED)

    def in_steps(self, each: bool) -> AbstractContextManager[None]:
        """Record the gradients that optimizers' steps get, while the result is open.

        each: whether to record all of them; else only those for which no hook was called.
        """
        each = each and self.collector.plan.parameters_grad
        return before_updates(guarded("an optimizer", "its gradients", self._on_step if each else self.late))

    def _on_step(self, optimizer: Any, *_: Any) -> None:
        self.late()
        entries = {id(entry.parameter): entry for entry in self.table.parameters()}
        with aside():
            for p in [p for group in optimizer.param_groups for p in group["params"]]:
                if id(p) not in entries:
                    self.collector.coverage.add(
                        "left_out", "gradients of an optimizer's own copies of parameters"
                    )
                elif (grad := p.grad) is not None:
                    self.collector.parameter_gradient(entries[id(p)], grad, in_step=True)

    @apart
    def late(self, optimizer: Any = None, *_: Any) -> None:
        """Record the gradients for which no hook was called: FSDP sets them itself, after its reduce-scatter.

        optimizer: whose step gets the gradients; None at the end of a training step. While another thread trains,
            only the gradients of this optimizer's parameters are read.
        """
        arrivals, hooked = self.collector.arrivals, self._hooked.copy()
        missing = [known for which, known in hooked.items() if which not in arrivals]
        readable = [known for known in missing if known.before is not _UNREAD]
        if missing and others_train():
            self._overtaken |= others_set_gradients()
            groups = () if optimizer is None else optimizer.param_groups
            own = {id(p) for group in groups for p in group["params"]}
            readable = [known for known in readable if id(known.entry.parameter) in own]
        if len(readable) < len(missing) and (self._overtaken or self.collector.recorder.backward.may_come):
            what = "gradients that arrive without a hook (FSDP sets them itself)"
            self.collector.coverage.unseen(what, _ELSEWHERE)
        for known in readable:
            grad = known.entry.parameter.grad
            if grad is not None and _mark(grad) != known.before:
                self.collector.parameter_gradient(known.entry, grad, seen=False)
        if self.table.lent and optimizer is None:
            self.collector.coverage.unseen(
                f"gradients of parameters of {len(self.table.lent)} modules", _LENT
            )

    def remove(self) -> None:
        with aside():
            with_table = not others_train()
            for known in self._hooked.copy().values():
                known.remove(with_table=with_table)
        self._hooked.clear()

    def on_call(self, tap: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``tap``, for the calls of modules, as a function that first puts back the hooks that were lost."""

        def call(*args: Any) -> Any:
            if self.missing or (self.table.lent and id(args[1]) in self.table.lent and not _is_lent(args[1])):
                with faults_reported("a module", "the hooks on its parameters"):
                    self.hook()
            return tap(*args)

        return call


def _is_lent(module: torch.nn.Module) -> bool:
    return bool(module._parameters) and torch.Tensor in map(type, module._parameters.values())


def _mark(grad: torch.Tensor) -> tuple[Any, ...]:
    """Return a mark that tells a gradient from a later one, which may have the same id, but not the same storage."""
    memory = weakref.ref(grad.untyped_storage()) if grad.layout is torch.strided else None
    return id(grad), grad._version, memory
