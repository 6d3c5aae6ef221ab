"""The token embedding: quantized, shared, absent."""

# ruff: noqa: PT008 (plain functions stand in for plain functions)
from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from probes.registry import Surroundings, probe
from probes.relay import stage_of
from torch import nn

QUANTIZED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "ignore": ["re:.*mtp.*", "lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["model.language_model.embed_tokens"],
            "weights": {"num_bits": 8, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True},
        }
    },
}


def _config(rank: int, size: int, method: str | None, quantized: bool, tied: bool = False) -> Any:
    from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import CompressedTensorsConfig
    from vllm.model_executor.models.qwen3_5 import Qwen3_5ForConditionalGeneration

    text = SimpleNamespace(
        vocab_size=256,
        hidden_size=128,
        num_hidden_layers=0,
        layer_types=[],
        rms_norm_eps=1e-6,
        tie_word_embeddings=tied,
        mtp_num_hidden_layers=0,
        model_type="qwen3_5_text",
    )
    quantization = CompressedTensorsConfig.from_config(QUANTIZED) if quantized else None
    if quantization is not None:
        quantization.apply_vllm_mapper(Qwen3_5ForConditionalGeneration.hf_to_vllm_mapper.get_rename_mapper())
    return SimpleNamespace(
        model_config=SimpleNamespace(hf_text_config=text, hf_config=SimpleNamespace(text_config=text)),
        parallel_config=SimpleNamespace(eplb_config=SimpleNamespace(num_redundant_experts=0)),
        quant_config=quantization,
        speculative_config=SimpleNamespace(method=method) if method else None,
    )


def build(kind: str, rank: int = 0, size: int = 1, method: str | None = None, **options: Any) -> Any:
    """The embedding that `Qwen3_5Model` ("target") or its MTP module ("mtp") holds; layers and norms are left out."""
    from vllm.model_executor.models import qwen3_5, qwen3_5_mtp

    made: Any
    config = _config(rank, size, method, options.pop("quantized", False), **options)
    with ExitStack() as stack:
        stack.enter_context(stage_of(rank, size))
        for place in ("layers.vocab_parallel_embedding", "parameter"):
            for name, value in (("rank", 0), ("world_size", 1)):
                target = f"vllm.model_executor.{place}.get_tensor_model_parallel_{name}"
                stack.enter_context(mock.patch(target, lambda value=value: value))
        for module in (qwen3_5, qwen3_5_mtp):
            for name in ("Qwen3_5RMSNorm", "ColumnParallelLinear"):
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, lambda *_, **__: nn.Identity()))
            stack.enter_context(mock.patch.object(module, "is_model_fused_shared_expert_compatible", lambda *_: False))
        stack.enter_context(mock.patch.object(qwen3_5, "make_layers", lambda *_, **__: (0, 0, nn.ModuleList())))
        cls = qwen3_5.Qwen3_5Model if kind == "target" else qwen3_5_mtp.Qwen3_5MultiTokenPredictor
        made = object.__new__(cls)
        nn.Module.__init__(made)
        prefix = "language_model.model" if kind == "target" else "mtp"
        _undecorated(cls)(made, vllm_config=config, prefix=prefix)
    return made.embed_tokens


def _undecorated(cls: Any) -> Any:
    """The class's own `__init__`, without what support_torch_compile puts around it."""
    for cell in cls.__init__.__closure__ or ():
        inner = cell.cell_contents
        if callable(inner) and getattr(inner, "__name__", "") == "__init__":
            return inner
    return cls.__init__


@probe("quantized-embedding")
def both_modules_take_a_packed_embedding(s: Surroundings) -> None:
    for kind in ("target", "mtp"):
        layer = build(kind, quantized=True)
        names = sorted(name for name, _ in layer.named_parameters())
        assert "weight_packed" in names, f"{kind}: the embedding has {', '.join(names)}, no weight_packed"
        plain = build(kind)
        assert [name for name, _ in plain.named_parameters()] == ["weight"], kind
    load_and_look_up(build("target", quantized=True), "cpu")


def load_and_look_up(layer: Any, device: str) -> None:
    """A packed table goes in through the weight loaders and comes out dequantized, on `device`."""
    generator = torch.Generator().manual_seed(3)
    codes = torch.randint(-127, 128, (256, 128), generator=generator, dtype=torch.int32)
    scale = torch.rand(256, 1, generator=generator).to(torch.bfloat16)
    parameters = dict(layer.named_parameters())
    shifted = (codes + 128).view(256, 32, 4)
    packed = sum((shifted[..., i] & 0xFF) << (8 * i) for i in range(4))
    given = {"weight_packed": packed.to(torch.int32), "weight_scale": scale, "weight_shape": torch.tensor([256, 128])}
    for name, value in given.items():
        if name in parameters:
            parameters[name].weight_loader(parameters[name], value)
    layer.quant_method.process_weights_after_loading(layer)
    ids = torch.tensor([0, 17, 255])
    found = layer.quant_method.embedding(layer, ids.to(device)).cpu()
    expected = codes[ids].float() * scale[ids].float()
    assert torch.allclose(found.float(), expected, rtol=1e-2, atol=1e-2), "other values than were packed"


@probe("mtp-shared-embedding-pp")
def mtp_uses_the_target_s_embedding_on_the_last_stage(s: Surroundings) -> None:
    from vllm.model_executor.models.utils import PPMissingLayer
    from vllm.v1.worker.gpu.spec_decode.eagle import utils

    def shared(target: Any, *, stages: int) -> bool:
        draft, own = SimpleNamespace(), nn.Embedding(4, 2)
        inner = SimpleNamespace(embed_tokens=own)
        group = SimpleNamespace(world_size=stages)
        with mock.patch.object(utils, "get_pp_group", lambda: group):
            utils.maybe_share_target_embed(draft, inner, SimpleNamespace(embed_tokens=target))
        assert inner.embed_tokens in (own, target)
        return inner.embed_tokens is target

    assert shared(nn.Embedding(4, 2), stages=1)
    assert shared(nn.Embedding(4, 2), stages=2), "the last stage keeps a second copy of the embedding"
    assert not shared(PPMissingLayer(), stages=2), "a stage without one keeps MTP's own"


@probe("last-stage-embedding")
def only_stages_that_look_tokens_up_have_the_embedding(s: Surroundings) -> None:
    from vllm.model_executor.models.utils import PPMissingLayer

    def held(rank: int, size: int, method: str | None = None, **options: Any) -> bool:
        return not isinstance(build("target", rank, size, method, **options), PPMissingLayer)

    assert held(0, 1)
    assert held(0, 2)
    assert not held(1, 2), "the last stage holds an embedding that nobody reads"
    assert not held(1, 3)
    assert held(1, 2, "dflash")
    assert held(1, 2, "mtp")
    assert not held(1, 3, "dflash"), "a middle stage never needs it"
    assert held(1, 2, tied=True)
