"""Dummy checkpoints: the shape is the model's, and readers of such files accept them."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from qwenlab.planner.geometry import drafters, models
from qwenlab.rehearsal.dummy_model import drafter_config, target_config, write


@pytest.mark.parametrize("model", models().values(), ids=lambda model: model.key)
def test_the_config_repeats_the_geometry(model) -> None:  # type: ignore[no-untyped-def]
    text = target_config(model)["text_config"]
    assert text["layer_types"].count("full_attention") == model.attention_layers
    assert text["layer_types"].count("linear_attention") == model.gdn_layers
    assert (text["num_attention_heads"], text["num_key_value_heads"]) == (
        model.attention.query_heads,
        model.attention.kv_heads,
    )


def test_the_drafter_names_the_targets_layers() -> None:
    drafter = drafters()["dflash2"]
    config = drafter_config(drafter, models()["qwen3.8-27b"])
    assert config["dflash_config"]["target_layer_ids"] == list(drafter.target_layers)
    assert max(drafter.target_layers) < config["num_target_layers"]


def test_every_id_of_the_vocabulary_can_be_printed(tmp_path: Path) -> None:
    config = target_config(models()["qwen3.8-27b"])
    write(tmp_path, config)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    vocab_size = config["text_config"]["vocab_size"]
    assert tokenizer.get_vocab_size() == vocab_size
    assert tokenizer.encode("w7 w9 <|im_end|>").ids == [7, 9, 2]
    assert tokenizer.decode([vocab_size - 1]) == f"w{vocab_size - 1}"
    assert json.loads((tmp_path / "generation_config.json").read_text())["eos_token_id"] == 2


@pytest.mark.parametrize(
    ("format_", "method"),
    [
        ("fp8", "fp8"),
        ("w8a16", "compressed-tensors"),
        ("w4a16", "compressed-tensors"),
        ("int4-autoround", "compressed-tensors"),
    ],
)
def test_a_quantised_format_says_how_vllm_reads_it(format_: str, method: str) -> None:
    assert target_config(models()["qwen3.8-27b"], format_)["quantization_config"]["quant_method"] == method


def test_bf16_has_no_quantization_and_an_unknown_format_is_refused() -> None:
    model = models()["qwen3.8-27b"]
    assert "quantization_config" not in target_config(model)
    with pytest.raises(ValueError, match="gguf"):
        target_config(model, "gguf")
