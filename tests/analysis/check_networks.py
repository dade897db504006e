"""Ten networks to replay, and kernels wrong by 1e-3, in the place of functions of torch while a step runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from dumped_steps import dumped
from torch import nn

Make = Callable[[], tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]]


def _language(name: str, **more: Any) -> Make:
    def make() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
        import transformers

        sizes = {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
        }
        config = getattr(transformers, f"{name}Config")(vocab_size=199, **{**sizes, **more})
        heads = {"Bert": "ForMaskedLM", "T5": "ForConditionalGeneration", "GPT2": "LMHeadModel"}
        model = getattr(transformers, name + heads.get(name, "ForCausalLM"))(config)
        tokens = torch.randint(0, 199, (2, 24))
        return model, lambda m: m(input_ids=tokens, labels=tokens).loss

    return make


def _like(x: torch.Tensor, model: nn.Module) -> torch.Tensor:
    return x.to(next(model.parameters()).dtype) if x.is_floating_point() else x


def _vit() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    import transformers

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = transformers.ViTForImageClassification(
        transformers.ViTConfig(image_size=32, patch_size=8, num_labels=5, **sizes)
    )
    images, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 5, (4,))
    return model, lambda m: m(pixel_values=_like(images, m), labels=labels).loss


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(3))
        self.last = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = x + F.relu(norm(conv(x)), inplace=True)
        return self.last(F.adaptive_avg_pool2d(x, 1).flatten(1))


class _Recurrent(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 32)
        self.net = getattr(nn, kind)(32, 48, num_layers=2, batch_first=True, bidirectional=True)
        self.last = nn.Linear(96, 50)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.net(self.words(x))[0])
        return found


def _classes(
    model: nn.Module, x: torch.Tensor, many: int
) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    with torch.no_grad():
        shape = model(x).shape[:-1]
    labels = torch.randint(0, many, shape).flatten()
    return model, lambda m: F.cross_entropy(m(_like(x, m)).flatten(0, -2), labels)


def _unet() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16), nn.SiLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.GroupNorm(4, 32), nn.GELU(),
        nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(16, 3, 1), nn.Tanh(),
    )  # fmt: skip
    x = torch.randn(4, 3, 32, 32)
    return model, lambda m: F.mse_loss(m(_like(x, m)), _like(x, m))


NETWORKS: dict[str, Make] = {
    "llama": _language("Llama"),
    "gpt2": _language("GPT2", n_embd=64, n_layer=2, n_head=4, attn_implementation="eager"),
    "bert": _language("Bert", hidden_dropout_prob=0.1),
    "t5": _language("T5", d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0),
    "mixtral": _language("Mixtral", num_local_experts=4, num_key_value_heads=2),
    "vit": _vit,
    "residual": lambda: _classes(_Residual(), torch.randn(4, 3, 32, 32), 5),
    "lstm": lambda: _classes(_Recurrent("LSTM"), torch.randint(0, 50, (4, 20)), 50),
    "gru": lambda: _classes(_Recurrent("GRU"), torch.randint(0, 50, (4, 20)), 50),
    "unet": _unet,
}

#: Network -> (owner, function, what its name begins with in a record) of the kernel that is wrong in it.
FAULTS: dict[str, tuple[Any, str, str]] = {
    "llama": (F, "scaled_dot_product_attention", "Functional.scaled_dot_product_attention"),
    "gpt2": (F, "layer_norm", "Functional.layer_norm"),
    "t5": (torch, "rsqrt", "Torch.rsqrt"),
    "residual": (F, "conv2d", "Functional.conv2d"),
    "lstm": (F, "linear", "Functional.linear"),
}


@contextlib.contextmanager
def wrong(owner: Any, name: str, share: float = 1e-3) -> Iterator[None]:
    """Have a function return what is wrong by this share of each element, with the right gradients."""
    right = getattr(owner, name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        found = right(*args, **kwargs)
        signs = torch.sign(torch.sin(torch.arange(found.numel(), dtype=torch.float32))).reshape(found.shape)
        return found + share * (found * signs.to(found)).detach()

    with patch.object(owner, name, kernel):
        yield


def recorded(make: Make, folder: Path, *, dtype: torch.dtype | None = None, **more: Any) -> Path:
    """Dump one step of a network, forward and backward, and return the dump's path."""
    torch.manual_seed(3)
    model, loss = make()
    if dtype is not None:
        model = model.to(dtype)
    return dumped(folder, lambda _: loss(model).backward(), model, **{"task": "tensor", **more})
