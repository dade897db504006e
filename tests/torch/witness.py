"""Another observer of the same run, which knows nothing of Probe: copies, hooks and replays of its own.

A run is deterministic, so a second one without Probe can be watched by means that Probe does not use: a
TorchFunctionMode sees every function, module hooks see every module, hooks on output tensors see their whole
gradient. What a call contributed to the gradients of its inputs is computed by calling it again, on copies of
what it was given, with the random state that it had.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

import torch
from attrs import define, field
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

__all__ = ["Path", "Seen", "Witness", "plainly", "tensors"]

Path = tuple[str, ...]
_OWN: Any = torch._C.DisableTorchFunction
_PREFIXES = (("Functional", nn.functional), ("Torch", torch), ("Tensor", Tensor))


def tensors(value: Any, path: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    """Every tensor in a value, with its place as the specification of dump.json counts it."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors(item, (*path, str(key)))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from tensors(value._asdict(), path)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from tensors(item, (*path, str(i)))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from tensors({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, path)


_SAME = {"truediv": "div", "radd": "add", "rmul": "mul", "rsub": "sub"}


def plainly(name: str) -> str:
    """The one name for a function that torch has under several: an operator and its method, VF and torch."""
    prefix, api = name.split(".")
    if prefix == "VF":
        return f"Torch.{api}"
    if prefix != "Tensor" or not (api.startswith("__") and api.endswith("__")) or "item" in api:
        return name
    api = api.strip("_")
    if api[0] == "i" and hasattr(Tensor, f"{api[1:]}_"):
        return f"Tensor.{_SAME.get(api[1:], api[1:])}_"
    return f"Tensor.{_SAME.get(api, api)}"


def listed(out: Any) -> Any:
    """What a call returned as the list, or the object, that a record holds under ``output``."""
    return out if is_object(out) else list(out) if isinstance(out, list | tuple) else [out]


def is_object(out: Any) -> bool:
    """Whether its parts have names."""
    return isinstance(out, Mapping) or hasattr(out, "_fields") or dataclasses.is_dataclass(out)


@define
class Seen:
    """One call: copies of what it was given and gave, the gradients of its outputs, and how to make it again.

    again: called with arguments like the original ones. views: whether the call wrote into a view, whose
    gradient no hook on the view sees. named: whether the parts of what it gave have names. came_from: id of a
    tensor it was given -> its node, and the copy. untold: the outputs that are one tensor in several places, or an
    input beside something else; passed_on: these inputs.
    """

    name: str
    again: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    random: Tensor
    autocast: bool
    grad: bool
    given: dict[Path, Tensor] = field(factory=dict)
    gave: dict[Path, Tensor] = field(factory=dict)
    grads: dict[Path, Tensor] = field(factory=dict)
    views: bool = False
    named: bool = False
    came_from: dict[int, tuple[Any, Tensor]] = field(factory=dict)
    untold: set[Path] = field(factory=set)
    passed_on: set[Path] = field(factory=set)

    def places(self, positional: int, keywords: Iterable[str]) -> list[str]:
        """The name of each argument of a call, as the function itself names it: torch hands a keyword on as
        a positional argument, and the other way round.
        """
        names = [str(i) for i in range(positional)]
        if isinstance(self.again, FunctionType):
            known = inspect.signature(self.again).parameters.values()
            if all(p.kind is p.POSITIONAL_OR_KEYWORD for p in known):
                names = [p.name for p in known][:positional]
        return [*names, *keywords]

    def slots(self) -> dict[str, Any]:
        """The arguments by their places."""
        values = [*self.args, *self.kwargs.values()]
        return dict(zip(self.places(len(self.args), self.kwargs), values, strict=True))

    def contributions(self) -> dict[Path, Tensor]:
        """What the call sends back to each of its inputs, given the gradients that came to its outputs."""
        leaves: dict[int, Tensor] = {}
        fed: dict[int, Tensor] = {}
        self_state = torch.get_rng_state()
        torch.set_rng_state(self.random)
        try:
            with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
                args, kwargs = _fresh(self.args, leaves, fed), _fresh(self.kwargs, leaves, fed)
                out = self.again(*args, **kwargs)
        finally:
            torch.set_rng_state(self_state)
        passed = {id(t) for t in fed.values()}
        ends = [(t, self.grads[path]) for path, t in tensors(listed(out)) if path in self.grads]
        shares = _gradients([(t, g) for t, g in ends if id(t) not in passed or t._version], leaves)
        for path, t in tensors(listed(out)):
            if path in self.grads and id(t) in passed and not t._version:
                key = next(k for k, v in fed.items() if v is t)
                if shares.get(key) is None:  # only passed on: the whole gradient
                    shares[key] = self.grads[path]
        return {path: shares[id(t)] for path, t in tensors(self.slots()) if shares.get(id(t)) is not None}


def _gradients(ends: list[tuple[Tensor, Tensor]], leaves: dict[int, Tensor]) -> dict[int, Tensor]:
    """The gradients of the leaves, when each end has this gradient in all.

    One output may be made from another inside the call (an LSTM cell's), so they are not summed up: each is
    replaced by the whole one as it passes.
    """
    if not ends or not leaves:
        return {}
    for t, g in ends:
        t.register_hook(lambda _, g=g: g)
    found = torch.autograd.grad(
        [t for t, _ in ends], list(leaves.values()), [torch.zeros_like(t) for t, _ in ends], allow_unused=True
    )
    return {key: g for key, g in zip(leaves, found, strict=True) if g is not None}


def _fresh(value: Any, leaves: dict[int, Tensor], fed: dict[int, Tensor]) -> Any:
    """The value with copies of its tensors; those that need a gradient hang from leaves of their own.

    The same tensor is the same copy wherever it stands.
    """
    if isinstance(value, Tensor):
        if id(value) not in fed:
            leaf = _copy(value)
            if value.requires_grad and torch.is_floating_point(value):
                leaves[id(value)] = leaf.requires_grad_()
                leaf = leaf.view_as(leaf).clone(memory_format=torch.preserve_format)
            fed[id(value)] = leaf
        return fed[id(value)]
    if isinstance(value, Mapping):
        made = copy.copy(value)
        for key in value:
            made[key] = _fresh(value[key], leaves, fed)  # type: ignore[index]
        return made
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_fresh(item, leaves, fed) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_fresh(item, leaves, fed) for item in value)
    return value


def _copy(t: Tensor) -> Tensor:
    """The same numbers in the same layout, out of the graph."""
    return t.detach().clone(memory_format=torch.preserve_format)


def _kept(value: Any, kept: dict[int, Tensor]) -> Any:
    """The value with copies of its tensors, which say whether the original needed a gradient."""
    if isinstance(value, Tensor):
        if id(value) not in kept:
            kept[id(value)] = _copy(value).requires_grad_(
                value.requires_grad and torch.is_floating_point(value) and torch.is_grad_enabled()
            )
        return kept[id(value)]
    if isinstance(value, Mapping):
        made = copy.copy(value)
        for key in value:
            made[key] = _kept(value[key], kept)  # type: ignore[index]
        return made
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_kept(item, kept) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_kept(item, kept) for item in value)
    return value


class _Functions(TorchFunctionMode):
    """Hands every outermost function with a name of ours to `see`."""

    def __init__(self, see: Callable[..., Any]) -> None:
        super().__init__()
        self._see = see
        self._names = {
            getattr(home, name): f"{prefix}.{name}"
            for prefix, home in reversed(_PREFIXES)
            for name in dir(home)
            if callable(getattr(home, name, None)) and _hashable(getattr(home, name))
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = self._names.get(func)
        if name is None:
            return func(*args, **(kwargs or {}))
        return self._see(name, func, args, kwargs or {})


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class Witness:
    """Watches one training step, as `zoo.train` wants it; ``calls`` and ``parameters`` are what it saw."""

    def __init__(self) -> None:
        self.calls: dict[str, Seen] = {}
        self.parameters: dict[str, list[Tensor]] = {}
        self._counts: Counter[str] = Counter()
        self._handles: list[Any] = []
        self._open: list[tuple[str, Seen]] = []

    def start(self, model: nn.Module) -> None:
        """Begin to watch a model's modules and all functions."""
        self._model = copy.deepcopy(model)
        owners: dict[int, list[str]] = {}
        for name, module in model.named_modules(remove_duplicate=False):
            if name:
                for own, p in module.named_parameters(recurse=False):
                    owners.setdefault(id(p), []).append(f"{name}.{type(module).__name__}.{own}")
        seen: set[int] = set()
        for name, module in model.named_modules():
            if not name:
                continue
            self._handles.append(module.register_forward_pre_hook(self._entering(name), with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._left(name), with_kwargs=True))
            for own, p in module.named_parameters(recurse=False):
                if p.requires_grad and id(p) not in seen:
                    seen.add(id(p))
                    key = f"Module.{name}.{type(module).__name__}.parameters_grad/{own}"
                    self._handles.append(p.register_post_accumulate_grad_hook(self._arrived(key)))
        self._mode = _Functions(self._function)
        self._mode.__enter__()

    def stop(self) -> None:
        """Watch no longer."""
        self._mode.__exit__(None, None, None)
        for handle in self._handles:
            handle.remove()

    def step(self) -> None:
        """Do nothing: one step is all it sees."""

    def _arrived(self, key: str) -> Callable[[Tensor], None]:
        def hook(p: Tensor) -> None:
            with _OWN():
                assert p.grad is not None
                self.parameters.setdefault(key, []).append(_copy(p.grad))

        return hook

    def _entering(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            with _OWN():
                key = f"Module.{name}.{type(module).__name__}.forward"
                again = copy.deepcopy(self._model.get_submodule(name))
                self._open.append((name, self._begin(key, again, args, kwargs, module=True)))

        return hook

    def _left(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
            with _OWN():
                opened, seen = self._open.pop()
                assert opened == name
                self._end(seen, out)

        return hook

    def _function(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen = self._begin(plainly(name), func, args, kwargs, module=False)
        out = func(*args, **kwargs)
        wrote = [a for a in args if isinstance(a, Tensor) and a._is_view()]
        seen.views = bool(wrote) and (name.endswith("_") or "__set" in name or "inplace" in str(kwargs))
        self._end(seen, out)
        return out

    def _begin(self, name: str, again: Any, args: Any, kwargs: Any, *, module: bool) -> Seen:
        number = self._counts[name]
        self._counts[name] += 1
        kept: dict[int, Tensor] = {}
        seen = Seen(
            f"{name}.{number}" if module else f"{name}.{number}.forward",
            again,
            _kept(args, kept),
            _kept(kwargs, kept),
            torch.get_rng_state(),
            torch.is_autocast_enabled("cpu"),
            torch.is_grad_enabled(),
        )
        seen.given = dict(tensors(seen.slots()))
        seen.came_from = {id(t): (t.grad_fn, kept[id(t)]) for _, t in tensors([args, kwargs])}
        self.calls[seen.name] = seen
        return seen

    def _end(self, seen: Seen, out: Any) -> None:
        seen.named = is_object(out)
        ends = [(path, t) for path, t in tensors(listed(out)) if t.requires_grad]
        for path, t in ends:
            node, copied = seen.came_from.get(id(t), (out, None))
            beside = node is t.grad_fn and any(other is not t for _, other in ends)
            if beside or sum(other is t for _, other in ends) > 1:
                seen.untold.add(path)
            if beside:
                seen.passed_on |= {given for given, mine in seen.given.items() if mine is copied}
        for path, t in tensors(listed(out)):
            seen.gave["output", *path] = _copy(t)
            if t.requires_grad and torch.is_grad_enabled():
                t.register_hook(self._came(seen, path))

    def _came(self, seen: Seen, path: Path) -> Callable[[Tensor], None]:
        def hook(g: Tensor | None) -> None:
            if g is None:
                return
            with _OWN():
                before = seen.grads.get(path)
                seen.grads[path] = _copy(g) if before is None else before + g

        return hook
