"""Build small networks of other people's by a seed, each with a batch: transformers' and one of torch's own layers."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn

__all__ = ["HELD_OUT", "NETWORKS", "build", "missing"]

_DECODER = {"intermediate_size": 2, "num_hidden_layers": 4, "num_attention_heads": 4}
_GROUPED = {**_DECODER, "num_key_value_heads": 2}
_NO_DROP = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}

#: Name -> (what it does, its type in transformers, its configuration; an ``intermediate_size`` is in widths).
NETWORKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("CausalLM", "llama", _GROUPED),
    "mistral": ("CausalLM", "mistral", _GROUPED),
    "qwen2": ("CausalLM", "qwen2", _GROUPED),
    "qwen3": ("CausalLM", "qwen3", {**_GROUPED, "head_dim": 16}),
    "gemma": ("CausalLM", "gemma", {**_GROUPED, "head_dim": 16}),
    "phi": ("CausalLM", "phi", {**_DECODER, "resid_pdrop": 0, "embd_pdrop": 0}),
    "mixtral": ("CausalLM", "mixtral", {**_GROUPED, "num_local_experts": 4}),
    "gpt_neox": ("CausalLM", "gpt_neox", _DECODER),
    "gpt2": ("CausalLM", "gpt2", {"n_layer": 4, "n_head": 4, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}),
    "opt": ("CausalLM", "opt", {"ffn_dim": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "dropout": 0}),
    "bert": ("MaskedLM", "bert", {**_DECODER, **_NO_DROP}),
    "roberta": ("MaskedLM", "roberta", {**_DECODER, **_NO_DROP}),
    "electra": ("MaskedLM", "electra", {**_DECODER, **_NO_DROP, "embedding_size": 64}),
    "distilbert": ("MaskedLM", "distilbert", {
        "n_layers": 4, "n_heads": 4, "hidden_dim": 128, "dropout": 0, "attention_dropout": 0}),
    "t5": ("Seq2SeqLM", "t5", {
        "d_kv": 16, "d_ff": 128, "num_layers": 3, "num_decoder_layers": 3, "num_heads": 4, "dropout_rate": 0}),
    "bart": ("Seq2SeqLM", "bart", {
        "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "dropout": 0, "attention_dropout": 0, "activation_dropout": 0}),
    "vit": ("ImageClassification", "vit", {**_DECODER, **_NO_DROP, "image_size": 32, "patch_size": 8}),
    "convnext": ("ImageClassification", "convnext", {"hidden_sizes": [16, 32, 64, 64], "depths": [2, 2, 2, 2]}),
    "resnet": ("ImageClassification", "resnet", {
        "embedding_size": 16, "hidden_sizes": [32, 64], "depths": [2, 2], "layer_type": "basic"}),
    "cnn": ("own", "", {}),
    "olmo2": ("CausalLM", "olmo2", _GROUPED),
    "modernbert": ("MaskedLM", "modernbert", {
        **_DECODER, "attention_dropout": 0, "embedding_dropout": 0, "mlp_dropout": 0, "reference_compile": False}),
    "mbart": ("Seq2SeqLM", "mbart", {
        "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "dropout": 0, "attention_dropout": 0, "activation_dropout": 0}),
    "regnet": ("ImageClassification", "regnet", {
        "embedding_size": 16, "hidden_sizes": [32, 64, 64, 64], "depths": [1, 2, 2, 1], "groups_width": 16}),
}  # fmt: skip
HELD_OUT = ("olmo2", "modernbert", "mbart", "regnet")
"""Networks that no constant was set with: for the final figure alone. (Before them it was qwen3, electra, bart and
convnext: honest pairs of the last two that were called different have taught the rule something since.)"""

_WIDTHS = {"gpt2": "n_embd", "t5": "d_model", "bart": "d_model", "mbart": "d_model", "distilbert": "dim"}
_POSITIONS = {"gpt2": "n_positions"}


class _Block(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c)
        self.c2, self.n2 = nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c)
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x + self.n2(self.c2(self.act(self.n1(self.c1(x))))))


class _Convolutions(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, c, 3, padding=1), nn.Sequential(*(_Block(c) for _ in range(5)))
        self.head = nn.Linear(c, 10)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.head(self.blocks(self.stem(pixel_values)).mean((2, 3)))
        return {"loss": nn.functional.cross_entropy(found, labels)}


def build(name: str, attention: str, seed: int, wide: int = 1) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Return a network in training mode without dropout, and its batch.

    attention: as transformers calls the implementations. wide: how many times 64 the width is, and the positions 16.
    """
    torch.manual_seed(seed)
    kind, model_type, config = NETWORKS[name]
    if kind == "own":
        model: nn.Module = _Convolutions(16 * wide)
    else:
        model = _from_transformers(kind, model_type, config, attention, wide)
    with torch.no_grad():  # trained networks have biases and gains that are not 0 and 1
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    draw = torch.Generator().manual_seed(seed + 100)
    if kind in ("own", "ImageClassification"):
        pixels = torch.randn(8, 3, 32, 32, generator=draw)
        return model.train(), {"pixel_values": pixels, "labels": torch.randint(0, 10, (8,), generator=draw)}
    ids = torch.randint(3, 256, (2 if wide == 1 else 4, 16 * wide), generator=draw)
    return model.train(), {"input_ids": ids, "labels": ids.clone()}


@cache
def missing(name: str) -> str:
    """Return why a network cannot be built with the packages that are installed; empty where it can."""
    try:
        build(name, "sdpa", 0)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _from_transformers(
    kind: str, model_type: str, config: dict[str, Any], attention: str, wide: int
) -> nn.Module:
    import transformers

    transformers.logging.set_verbosity_error()
    width, some = 64 * wide, dict(config)
    if "intermediate_size" in some:
        some["intermediate_size"] *= width
    if kind != "ImageClassification":
        some |= {"vocab_size": 256, _WIDTHS.get(model_type, "hidden_size"): width}
        some |= {"use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        if model_type != "t5":
            some[_POSITIONS.get(model_type, "max_position_embeddings")] = 16 * wide + 4
    else:
        some |= {"num_labels": 10} | ({"hidden_size": width} if model_type == "vit" else {})
    spread = "init_std" if model_type in ("opt", "bart", "mbart") else "initializer_range"
    some |= {} if model_type == "t5" else {spread: 0.1 / wide**0.5}
    if kind == "Seq2SeqLM":
        some["decoder_start_token_id"] = 0
    if model_type == "opt":
        some["word_embed_proj_dim"] = width
    configured = transformers.AutoConfig.for_model(model_type, **some)
    made = getattr(transformers, f"AutoModelFor{kind}").from_config(configured)
    if model_type not in ("convnext", "resnet", "regnet"):
        made.set_attn_implementation(attention)
    return made
