"""Name the modules of a model (L0), and catch their calls.

No hook is put on a module: `torch.nn.Module.__call__` is replaced while collecting, so that deepcopy, pickle,
TorchScript and the user's own hooks see the modules as they are.
"""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from attrs import define, field
from probe_format.errors import UsageError
from probe_runtime.collect import TrackedModule, TrackedParameter, kind_of, tracked_parameters
from probe_runtime.patching import Held, Nested, place, replaced
from probe_runtime.patching import thread as _thread
from torch import nn

from probe_torch.compiling import is_compiling
from probe_torch.submodules import compiled, named_submodules, submodules

Model = nn.Module | Sequence[nn.Module]
#: called with (entry, module, args, kwargs, the original nn.Module.__call__)
OnCall = Callable[[TrackedModule, nn.Module, tuple[Any, ...], dict[str, Any], Callable[..., Any]], Any]


def models_in(model: object) -> tuple[nn.Module, ...]:
    """Return the model, or the models of a list or tuple; () for None. Raises UsageError when it is neither."""
    if model is None:
        return ()
    if isinstance(model, nn.Module):
        return (model,)
    if isinstance(model, (list, tuple)) and model and all(isinstance(m, nn.Module) for m in model):
        return tuple(model)
    raise UsageError(
        f"The model must be a torch.nn.Module, or a list or tuple of them; got {kind_of(model)}."
    )


@define
class ModuleTable:
    """Hold the modules whose calls are recorded.

    entries: id of a module -> the module with its name.
    roots: id of a model given to start() -> the model.
    not_seen: what the report lists as not recorded -> why.
    """

    entries: dict[int, TrackedModule] = field(factory=dict)
    roots: dict[int, nn.Module] = field(factory=dict)
    not_seen: dict[str, str] = field(factory=dict)

    def add_model(self, model: Model) -> None:
        """Track every submodule of a model, or of each of a list of models (names then begin with its index).

        The model itself has no record of its own, as in msprobe; parameters that it owns directly are
        listed in `not_seen`. Raises UsageError when ``model`` is neither a module nor a list of them.
        """
        for i, one in enumerate(models_in(model)):
            self._add_one(one, "" if one is model else f"{i}.")

    def _add_one(self, model: nn.Module, prefix: str) -> None:
        self.roots[id(model)] = model
        for name, module in named_submodules(model):
            compiled_one = "_orig_mod" in name
            path = plain_path(name) if compiled_one else name
            if not path:
                own = [n for n, _ in module.named_parameters(recurse=False)]
                if own:
                    which = ", ".join(own[:8]) + (f" and {len(own) - 8} more" if len(own) > 8 else "")
                    self.not_seen[f"{prefix}parameters of the model itself: {which}"] = (
                        "the module given to start() has no record; wrap it, or give its parent, to see them"
                    )
                continue
            if isinstance(module, torch.jit.ScriptModule):
                self.not_seen.setdefault(f"inside {prefix}{path}", "TorchScript runs outside Python")
            made = "_orig_mod" in module._modules  # TorchScript's table has no get()
            cls = type(module._modules["_orig_mod"] if made else module).__name__
            if compiled_one and name.endswith("_orig_mod"):
                continue  # the same module as the compiled one around it
            self.entries.setdefault(id(module), TrackedModule(f"Module.{prefix}{path}.{cls}", module))

    def add_named(self, module: nn.Module, name: str) -> None:
        """Track one module under a name of the user's, with nothing inside it (`module_dump`)."""
        base = f"Module.{name}.{type(module).__name__}"
        self.entries[id(module)] = TrackedModule(base, module, opaque=True)

    def roots_of(self, model: Model | None) -> tuple[nn.Module, ...]:
        """Return the models in ``model``: itself, or the items of a list; () for None."""
        return models_in(model)

    def note_compiled(self, model: nn.Module) -> None:
        """Add to `not_seen` the parts of a model that run inside torch.compile, where calls can't be seen."""
        for name in compiled_parts(model):
            self.not_seen[f"inside {name}"] = (
                "torch.compile turns it into one region; only the call of that region is recorded"
            )

    def note_uncompiled(self, models: Sequence[nn.Module]) -> None:
        """Add to `not_seen` what torch.compile made of these models, and of functions, since it does not run."""
        for what in ("functions", *(name for model in models for name in compiled_parts(model))):
            self.not_seen[f"the compiled code of {what}"] = (
                "compiled: eager ran it uncompiled while this step was dumped, so it is another run than a compiled one"
            )

    def parameters(self) -> list[TrackedParameter]:
        """Return every parameter of the tracked modules once, with all its owners (tied weights have several)."""
        having_some = [entry for entry in self.entries.values() if entry.module._parameters]
        return tracked_parameters(having_some, _wanting_gradients)

    def never_called(self) -> Iterator[tuple[str, str]]:
        """Yield (module, why) for every tracked module that was not called while collecting."""
        entries = list(self.entries.values())
        made = set(map(id, compiled([entry.module for entry in entries])))
        regions = [entry.base for entry in entries if id(entry.module) in made] if made else []
        whole = bool(compiled(self.roots.values()))
        for entry in entries:
            if entry.called or getattr(type(entry.module), "forward", None) is _NO_FORWARD:
                continue  # a ModuleList or ModuleDict is never called
            path = entry.base.rpartition(".")[0]
            inside = whole or any(path.startswith(base.rpartition(".")[0] + ".") for base in regions)
            yield entry.base, "inside a torch.compile region" if inside else "not called in this step"


def _wanting_gradients(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in module._parameters.items() if p is not None and p.requires_grad]


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
    places, calls = [place(nn.Module, "__call__", _calling)], (table.entries, on_call)
    _watching.append(calls)
    return replaced(places, lambda: _watching.remove(calls))


@contextmanager
def outermost_calls(begins: Callable[[nn.Module], None]) -> Iterator[None]:
    """Tell of each call of a module that no other module makes, before it begins, while open."""
    _outermost.append(begins)
    try:
        with replaced([place(nn.Module, "__call__", _calling)]):
            yield
    finally:
        _outermost.remove(begins)


class _Inside(threading.local):
    is_call = False


_watching: list[tuple[dict[int, TrackedModule], OnCall]] = []
_outermost: list[Callable[[nn.Module], None]] = []
_inside = _Inside()
_nested = Nested()
_NOBODY: tuple[dict[int, TrackedModule], Any] = ({}, None)


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
            entries, on_call = _watching[-1]
        except IndexError:
            entries, on_call = _NOBODY
        entry = entries.get(id(self))
        if entry is None or _thread.muted or _nested.is_recorded(self, call):
            return original(self, *args, **kwargs)
        before, (_nested.what, _nested.by) = (_nested.what, _nested.by), (self, call)
        try:
            return on_call(entry, self, args, kwargs, original)
        finally:
            _nested.what, _nested.by = before

    return call
