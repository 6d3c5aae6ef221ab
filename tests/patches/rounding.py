# mypy: disable-error-code="import-not-found, misc, no-untyped-call"
"""Run under the interpreter of `tests.vllm_env`: how far bfloat16 alone moves the tiny target's logits.

stdin: JSON {"checkpoint": folder, "tokens": [...], "spoken": [...]}; last line of stdout: the largest difference
between the logits of `spoken` in bfloat16 and in float32, over all places of `tokens`. Asked is transformers' own
model, which shares no code with vLLM's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM


def logits(checkpoint: Path, dtype: torch.dtype, tokens: list[int]) -> Any:
    """Logits (tokens, vocabulary) in float64."""
    model = Qwen3_5ForCausalLM(AutoConfig.from_pretrained(checkpoint).text_config).eval()
    weights = load_file(checkpoint / "model.safetensors")
    own = {name.replace("model.language_model.", "model."): value for name, value in weights.items()}
    model.load_state_dict({name: value for name, value in own.items() if not name.startswith("mtp.")})
    with torch.no_grad():
        return model.to(dtype)(torch.tensor([tokens])).logits[0].double()


def main() -> None:
    """Read the question, print the answer."""
    asked = json.load(sys.stdin)
    told = [logits(Path(asked["checkpoint"]), dtype, asked["tokens"]) for dtype in (torch.bfloat16, torch.float32)]
    print(float((told[0] - told[1])[:, asked["spoken"]].abs().max()))


if __name__ == "__main__":
    main()
