"""Copy a model, its optimizer and its inputs with tensors that have shapes and dtypes, and no memory."""

import copy
import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from attrs import define, field
from probe_format.errors import UsageError
from probe_format.excerpts import error_text, unsignalled
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.parallel import DistributedDataParallel


def without_memory() -> AbstractContextManager[Any]:
    """Return a context in which models and inputs are made without memory, on the device meta."""
    return torch.device("meta")


class _Mode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Raise the versions of the tensors that are written in lists, as the real operators do (`_foreach_add_`)."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        for argument, value in zip(func._schema.arguments, args, strict=False):
            alias = argument.alias_info
            if alias is not None and alias.is_write and isinstance(value, (list, tuple)):
                for t in value:
                    torch.autograd.graph.increment_version(t)
        return out


@define
class StandIns:
    """Make fake tensors, one for each real one, all of one mode.

    mode: the mode that they belong to.
    """

    mode: FakeTensorMode = field(factory=lambda: _Mode(allow_non_fake_inputs=True))
    _memo: dict[int, Any] = field(factory=dict)
    _kept: list[Any] = field(factory=list)  # their ids are in the memo

    def model(self, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> tuple[nn.Module, Any]:
        """Return a copy of the model, and of its optimizer, whose parameters and buffers are fake.

        Raises UsageError when they cannot be copied.
        """
        _check_sharded(model)
        for t in [*model.parameters(), *model.buffers(), *_attributes(model)]:
            self.tensor(t)
        if optimizer is not None:  # without its state, whose numbers it would ask for; a step makes it anew
            self._memo[id(optimizer.state)] = defaultdict(dict)
        try:
            # These only hand on to the module inside, and reduce gradients; the innermost comes first.
            for wrapper in [m for m in model.modules() if isinstance(m, DistributedDataParallel)][::-1]:
                self._memo[id(wrapper)] = _unwrapped(wrapper, copy.deepcopy(wrapper.module, self._memo))
                self._kept.append(wrapper)
            copied: tuple[nn.Module, Any] = copy.deepcopy((model, optimizer), self._memo)
            _check_apart(model, copied[0])
        except unsignalled(Exception) as e:
            raise UsageError(
                "A plan works on a copy of the model, so that yours stays as it is, and this one cannot be copied "
                f"({error_text(e)}). Give the module inside the wrapper, or one made without what cannot be copied."
            ) from e
        return copied

    def tensor(self, t: torch.Tensor) -> torch.Tensor:
        """Return the fake of a tensor, always the same. One on the device meta stands for one on the CPU."""
        found: torch.Tensor | None = self._memo.get(id(t))
        if found is None:
            found = self._memo[id(t)] = self._fake(t)
            self._kept.append(t)
        return found

    def value(self, value: Any) -> Any:
        """Return a value with fakes for its tensors: a tensor, or lists, tuples, dicts and dataclasses of them."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if type(value) is dict:
            return {key: self.value(v) for key, v in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self.value(v) for v in value)
        if isinstance(value, (Mapping, list, tuple)):
            return self._copied(value, value.values() if isinstance(value, Mapping) else value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = (f.name for f in dataclasses.fields(value))
            return self._copied(value, (getattr(value, name) for name in fields if hasattr(value, name)))
        return value

    def _copied(self, value: Any, parts: Iterable[Any]) -> Any:
        """Return a copy of an object of the user's class, with fakes for its tensors; itself if it has none."""
        if id(value) not in self._memo:
            self._memo[id(value)] = None  # where it contains itself
            self._kept.append(value)
            same = [self.value(part) is part for part in parts]  # the memo has its tensors then
            del self._memo[id(value)]
            if all(same):
                return value
        try:
            made = copy.deepcopy(value, self._memo)
            if made is value:
                raise ValueError("its copy is the same object")
        except unsignalled(Exception) as e:
            why = f"plan cannot copy a {type(value).__name__} ({error_text(e)})"
            raise UsageError(f"{why}. Give its tensors in a list or a dict.") from e
        return made

    def _fake(self, t: torch.Tensor) -> torch.Tensor:
        if isinstance(t, (nn.UninitializedParameter, nn.UninitializedBuffer)):
            raise UsageError(
                "A parameter of the model is not initialised yet (a lazy module). Run the model once before planning."
            )
        if t.device.type == "meta" or isinstance(t, FakeTensor) or t.is_inference():
            device = "cpu" if t.device.type == "meta" else t.device
            with self.mode, torch.no_grad():
                made = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device)
        else:
            made = self.mode.from_tensor(t.detach())
        made.requires_grad_(t.requires_grad)
        if isinstance(t, nn.Parameter):
            made._is_param = True  # what makes a tensor subclass a Parameter
        return made


def _check_apart(model: nn.Module, copied: nn.Module) -> None:
    """Raise ValueError when a copy has a module, parameter or buffer of the model itself."""
    own = {id(x) for x in (*model.modules(), *model.parameters(), *model.buffers())}
    named = *copied.named_modules(), *copied.named_parameters(), *copied.named_buffers()
    for name, x in named:
        if id(x) in own:
            raise ValueError(f"a copy of it shares {name or 'all'} with it")


def _check_sharded(model: nn.Module) -> None:
    """Raise UsageError when FSDP holds the parameters of the model, or of a part of it."""
    for path, module in model.named_modules():
        if any(cls.__module__.startswith("torch.distributed.fsdp") for cls in type(module).__mro__):
            raise UsageError(
                f"{path or 'The model'} is sharded by FSDP, which allows no copy, and a plan works on one. Plan for "
                "the model as it is before fully_shard() or FullyShardedDataParallel(). What a rank writes differs "
                "from that: it has shards of the parameters' gradients, and at L1 and mix what FSDP calls besides."
            )


class _Unwrapped(nn.Module):
    module: nn.Module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Hand on to the module inside. What a wrapper does besides is no call that a dump would have."""
        return self.module(*args, **kwargs)


def _unwrapped(wrapper: nn.Module, inside: Any) -> nn.Module:
    """Return what stands for a wrapper around the copy of its module, under the wrapper's name."""
    made: _Unwrapped = type(type(wrapper).__name__, (_Unwrapped,), {})()
    made.module = inside
    return made.train(wrapper.training)


def _attributes(model: nn.Module) -> Iterator[torch.Tensor]:
    """Yield the usual tensors that modules keep as plain attributes. Others are copied as they are."""
    for module in model.modules():
        for value in vars(module).values():
            if type(value) is torch.Tensor and value.layout is torch.strided and value.is_leaf:
                yield value
