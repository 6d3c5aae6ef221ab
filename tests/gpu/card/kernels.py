"""Triton kernels, compiled."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from probes.embeddings import build, load_and_look_up
from probes.kernels import as_is, drafter_inputs, own_states_only

DEVICE = "cuda"
VOCABULARY, HIDDEN = 248_320, 5_120
SEATS, DRAFTS = 1, 7


def compiled(module: ModuleType) -> int:
    """Kernels of a module that Triton holds compiled in this process."""
    from triton.runtime.jit import JITFunction

    functions = {id(f): f for f in vars(module).values() if isinstance(f, JITFunction)}
    return sum(len(caches[0]) for f in functions.values() for caches in f.device_caches.values())


def a_request_reaches_no_state_but_its_own(figures: dict[str, Any]) -> None:
    own_states_only(DEVICE)


def no_request_compiles_the_drafter_s_kernel(figures: dict[str, Any]) -> None:
    """Requests of every length run the kernel that the first one compiled."""
    from vllm.v1.worker.gpu.spec_decode.dflash import speculator

    lengths = (600, 1, 8, 9, 40, 100, 250)
    with torch.device(DEVICE):
        for length in lengths:
            drafter_inputs([length], as_is, room=4096)
            figures[f"compiled after {length}"] = compiled(speculator)
        together, _ = drafter_inputs([9, 3], as_is, room=4096)
    torch.cuda.synchronize()
    on_cpu = torch.arange(9)
    assert torch.equal(together["context_positions"][:9].cpu(), on_cpu), "other positions than the requests'"
    count = figures[f"compiled after {lengths[-1]}"]
    assert count == 1, f"{count} kernels compiled for {len(lengths)} request lengths"


def a_packed_embedding_is_looked_up(figures: dict[str, Any]) -> None:
    """The layer takes packed tensors; the lookup kernel is right over a table of the model's size."""
    from vllm.model_executor.layers.quantization.compressed_tensors import compressed_tensors_embedding as packed

    with torch.device(DEVICE):
        layers = {kind: build(kind, quantized=True) for kind in ("target", "mtp")}
    for kind, layer in layers.items():
        names = sorted(name for name, _ in layer.named_parameters())
        assert "weight_packed" in names, f"{kind}: the embedding has {', '.join(names)}, no weight_packed"
        load_and_look_up(layer, DEVICE)

    draw = torch.Generator(DEVICE).manual_seed(7)
    table = torch.randint(-(2**31), 2**31 - 1, (VOCABULARY, HIDDEN // 4), generator=draw, device=DEVICE).to(torch.int32)
    scale = torch.rand(VOCABULARY, 1, generator=draw, device=DEVICE).to(torch.bfloat16)
    ids = torch.randint(0, VOCABULARY, (8_192,), generator=draw, device=DEVICE)
    ids[0], ids[-1] = VOCABULARY - 1, 0
    found = packed._dequant_gather_triton(ids, table, scale, HIDDEN, 8)
    shifts = torch.arange(0, 32, 8, device=DEVICE)
    codes = ((table[ids].long()[..., None] >> shifts) & 0xFF).view(len(ids), HIDDEN) - 128
    expected = codes.float() * scale[ids].float()
    assert torch.allclose(found.float(), expected, rtol=0.01), "a lookup in the large table gives other values"


def a_warm_sampler_compiles_nothing(figures: dict[str, Any]) -> None:
    """After the warm-up that the V2 runner registers for a drafter, sampled requests compile no kernel."""
    from vllm.model_executor.warmup.jit_warmup import JitWarmupRegistry
    from vllm.v1.sample.ops import topk_topp_sampler, topk_topp_triton

    config: Any = SimpleNamespace(
        scheduler_config=SimpleNamespace(max_num_seqs=SEATS),
        num_speculative_tokens=DRAFTS,
        model_config=SimpleNamespace(get_vocab_size=lambda: VOCABULARY),
    )
    registry = JitWarmupRegistry(config)
    with registry.activate():
        topk_topp_sampler.register_top_k_top_p_warmups()
    registry.warmup()
    figures["compiled by the warm-up"] = warm = compiled(topk_topp_triton)
    rows = SEATS * (DRAFTS + 1)
    k = torch.full((rows,), 20, dtype=torch.int32, device=DEVICE)
    p = torch.full((rows,), 0.95, device=DEVICE)
    for top_k, top_p in ((k, p), (None, p), (k, None)):
        logits = torch.randn(rows, VOCABULARY, device=DEVICE)
        kept = topk_topp_sampler.apply_top_k_top_p(logits, top_k, top_p) > float("-inf")
        assert kept.any(1).all(), "a row lost all its tokens"
        assert top_k is None or int(kept.sum(1).max()) <= 20, "top-k kept more than k tokens"
    late = compiled(topk_topp_triton) - warm
    assert warm, "the warm-up compiled nothing"
    assert late == 0, f"the first sampled requests compiled {late} kernels"
