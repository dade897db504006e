"""Name the modules of a model (L0), and catch their calls.

No hook is put on a module: `torch.nn.Module.__call__` is replaced while collecting, so that deepcopy, pickle,
TorchScript and the user's own hooks see the modules as they are.
"""

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import torch
from probe_runtime.collect import (
    AnyModuleTable,
    TrackedModule,
    TrackedParameter,
    kind_of,
    models_of,
    tracked_parameters,
)
from probe_runtime.patching import Held, Nested, bound_elsewhere, listening, place
from probe_runtime.patching import thread as _thread
from torch import nn

from probe_torch.compiling import is_compiling
from probe_torch.submodules import compiled, named_submodules, submodules

Model = nn.Module | Sequence[nn.Module]
#: called with (entry, module, args, kwargs, the original nn.Module.__call__)
OnCall = Callable[[TrackedModule, nn.Module, tuple[Any, ...], dict[str, Any], Callable[..., Any]], Any]


def models_in(model: object) -> tuple[nn.Module, ...]:
    """Return the model, or the models of a list or tuple; () for None. Raises UsageError when it is neither."""
    return models_of(model, nn.Module, "torch.nn.Module")


class ModuleTable(AnyModuleTable):
    """Hold the modules whose calls are recorded."""

    prefix, registry, parameter_registry = "Module", "_modules", "_parameters"

    def roots_of(self, model: Model | None) -> tuple[nn.Module, ...]:
        return models_in(model)

    def is_module(self, kind: type) -> bool:
        return issubclass(kind, nn.Module)

    def _add_one(self, model: nn.Module, prefix: str) -> None:
        for name, module in named_submodules(model):
            compiled_one = "_orig_mod" in name
            path = plain_path(name) if compiled_one else name
            if not path:
                self._note_own(prefix, [n for n, _ in module.named_parameters(recurse=False)])
                self.passed[id(module)] = module
                continue
            try:
                made = "_orig_mod" in module._modules  # TorchScript's table has no get()
            except AttributeError:  # a mock has none
                self.not_seen.setdefault(f"inside {prefix}{path}", f"{kind_of(module)} is no module")
                continue
            cls = type(module._modules["_orig_mod"] if made else module).__name__
            if compiled_one and name.endswith("_orig_mod"):
                self.passed[id(module)] = module
                continue  # the same module as the compiled one around it
            if (which := id(module)) not in self.entries:
                self.entries[which] = TrackedModule(f"Module.{prefix}{path}.{cls}", module)

    def _walk(self, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        return ((plain_path(name), module) for name, module in named_submodules(model))

    def note_compiled(self, models: Sequence[nn.Module]) -> None:
        """Add to `not_seen` the parts of models that run inside torch.compile, where calls can't be seen."""
        for name in chain.from_iterable(map(compiled_parts, models)):
            self.not_seen[f"inside {name}"] = (
                "torch.compile turns it into one region; only the call of that region is recorded"
            )

    def note_scripted(self, models: Sequence[nn.Module]) -> None:
        """Add to `not_seen` the parts of models that run in TorchScript, where calls can't be seen."""
        for model in models:
            some = any(map(isinstance, submodules(model), repeat(torch.jit.ScriptModule)))
            for name, module in named_submodules(model) if some else ():
                if isinstance(module, torch.jit.ScriptModule):
                    where = self.prefixes.get(id(model), "") + plain_path(name)
                    what = f"inside {where.rstrip('.') or 'the whole model'}"
                    self.not_seen.setdefault(what, "TorchScript runs outside Python")

    def note_uncompiled(self, models: Sequence[nn.Module]) -> None:
        """Add to `not_seen` the code that torch.compile made of these models and of functions, as it does not run."""
        for what in ("functions", *chain.from_iterable(map(compiled_parts, models))):
            self.not_seen[f"the compiled code of {what}"] = (
                "compiled: eager ran it uncompiled while this step was dumped, so it is another run than a compiled one"
            )

    def parameters(self) -> list[TrackedParameter]:
        """Return every parameter of the tracked modules once, with all its owners (tied weights have several)."""
        having_some = [entry for entry in list(self.entries.values()) if entry.module._parameters]
        return tracked_parameters(having_some, _wanting_gradients)

    def never_called(self) -> Iterator[tuple[str, str]]:
        entries = list(self.entries.values())
        never = [entry for entry in entries if not entry.called and not _is_only_a_list(entry.module)]
        if not never:
            return
        roots = [(f"Module.{self.prefixes[which]}", root) for which, root in self.roots.items()]
        named = roots + [(entry.base.rpartition(".")[0] + ".", entry.module) for entry in entries]
        made = set(map(id, compiled([module for _, module in named])))
        regions = {before: "inside a torch.compile region" for before, module in named if id(module) in made}
        for before, module in named:
            if isinstance(module, torch.jit.ScriptModule):
                regions[before] = "inside TorchScript"
        uncalled = "not called in this step"
        if "torch._dynamo" in sys.modules and not any(entry.called for entry in entries):
            uncalled += ": if what torch.compile made of the model was called instead, give that to start()"
        for entry in never:
            path = entry.base.rpartition(".")[0]
            inside = next((why for before, why in regions.items() if path.startswith(before)), "")
            own = type(entry.module).__call__ is not nn.Module.__call__
            why = "no call was seen, of a class with a __call__ of its own" if own else uncalled
            yield entry.base, inside or why


def _wanting_gradients(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in module._parameters.items() if p is not None and p.requires_grad]


def _is_only_a_list(module: nn.Module) -> bool:
    """Return whether a module cannot be called, as a ModuleList or ModuleDict."""
    return getattr(type(module), "forward", None) is _NO_FORWARD


_NO_FORWARD: Any = nn.Module.forward


def compiled_parts(model: nn.Module) -> Iterator[str]:
    """Yield the names of the modules of a model that torch.compile has been applied to."""
    made = set(map(id, compiled(submodules(model))))
    for name, module in model.named_modules() if made else ():
        if id(module) in made and not name.endswith("_orig_mod"):
            yield plain_path(name) or "the whole model"


def plain_path(name: str) -> str:
    """Return the qualified name without the wrapper level that torch.compile puts in."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def patched_call(table: ModuleTable, on_call: OnCall) -> Held:
    """Send calls of the table's modules through ``on_call`` until the result is undone."""
    kinds = [type(entry.module) for entry in table.entries.values()]
    owners = nn.Module, *bound_elsewhere(kinds, nn.Module, "__call__")
    places = [place(owner, "__call__", _calling) for owner in owners]
    return listening(_watching, (table.entries, on_call, Nested()), places)


def outermost_calls(begins: Callable[[nn.Module], None]) -> Held:
    """Call ``begins`` before each call of a module that no other module makes, until the result is undone."""
    return listening(_outermost, begins, [place(nn.Module, "__call__", _calling)])


class _Inside(threading.local):
    is_call = False


#: Each entry has its own Nested, so that calls that never end, or end out of order (greenlets), do not outlive it.
_watching: list[tuple[dict[int, TrackedModule], OnCall, Nested]] = []
_outermost: list[Callable[[nn.Module], None]] = []
_inside = _Inside()
_NOBODY: tuple[dict[int, TrackedModule], Any, Nested] = ({}, None, Nested())


def _calling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or torch._C._get_tracing_state() is not None:
            return original(self, *args, **kwargs)
        if _outermost and not _inside.is_call:
            _inside.is_call = True
            try:
                for begins in _outermost:
                    begins(self)
                return call(self, *args, **kwargs)
            finally:
                _inside.is_call = False
        try:
            entries, on_call, nested = _watching[-1]
        except IndexError:
            entries, on_call, nested = _NOBODY
        entry, run = entries.get(id(self)), original
        if len(_watching) > 1:  # a step that is watched and dumped
            entries, inner, _ = _watching[-2]
            if (inside := entries.get(id(self))) is not None:
                entry, on_call, run = _both(entry, on_call, inside, inner, original)
        if entry is None or _thread.muted or nested.is_recorded(self, call):
            return original(self, *args, **kwargs)
        before, (nested.what, nested.by) = (nested.what, nested.by), (self, call)
        try:
            return on_call(entry, self, args, kwargs, run)
        finally:
            nested.what, nested.by = before

    return call


def _both(
    entry: TrackedModule | None,
    on_call: OnCall,
    inside: TrackedModule,
    inner: OnCall,
    original: Callable[..., Any],
) -> tuple[TrackedModule, OnCall, Callable[..., Any]]:
    """Return (entry, on_call, original) that send a call through ``inner``, and through ``on_call`` around that."""
    if entry is None:
        return inside, inner, original
    return entry, on_call, lambda module, /, *args, **kwargs: inner(inside, module, args, kwargs, original)
