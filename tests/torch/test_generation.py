"""`token_range` in the loop of transformers that generates tokens: the prompt, and what follows one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from dumping import opened, records
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

PROMPT, TOKENS = 7, 5


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def generated(model: Any, **how: Any) -> torch.Tensor:
    torch.manual_seed(3)
    prompt = torch.randint(2, 60, (1, PROMPT))
    settings = GenerationConfig(max_new_tokens=TOKENS, pad_token_id=0, **how)
    return model.generate(prompt, generation_config=settings)  # type: ignore[no-any-return]


@pytest.mark.parametrize("how", [{"do_sample": False}, {"do_sample": True}, {"num_beams": 2}], ids=str)
@pytest.mark.parametrize("asked", [None, [0, 0], [1, 2], [0, 1], [4, 4]], ids=str)
def test_calls_of_generate_are_chosen_by_their_number(
    model: Any, how: dict[str, Any], asked: list[int] | None, tmp_path: Path
) -> None:
    plain = generated(model, **how)
    with opened(tmp_path, level="mix", task="tensor") as debugger:
        debugger.start(model, token_range=asked)
        found = generated(model, **how)
        debugger.stop()
        debugger.step()
    assert torch.equal(found, plain)
    first, last = asked or (0, TOKENS - 1)
    data = records(tmp_path / "dump")
    lengths = [
        record["input_args"][0]["shape"][1]
        for name, record in data.items()
        if name.startswith("Module.model.layers.1.self_attn.q_proj.Linear.forward.")
    ]
    assert lengths == [PROMPT if number == 0 else 1 for number in range(first, last + 1)]
    heads = [name for name in data if name.startswith("Module.lm_head.Linear.forward.")]
    assert len(heads) == last - first + 1


def test_the_calls_of_a_range_are_those_of_a_whole_dump(model: Any, tmp_path: Path) -> None:
    """Value for value, with numbers from 0."""
    by_range = {}
    for asked in (None, [2, 2]):
        folder = tmp_path / str(asked)
        with opened(folder, level="L0") as debugger:
            debugger.start(model, token_range=asked)
            generated(model)
            debugger.stop()
            debugger.step()
        by_range[str(asked)] = records(folder / "dump")
    third = {name: record for name, record in by_range["None"].items() if name.endswith(".forward.2")}
    assert len(third) > 10
    assert list(third.values()) == list(by_range["[2, 2]"].values())
