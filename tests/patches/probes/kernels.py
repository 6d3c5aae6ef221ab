"""Triton kernels, run by Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from probes.registry import Surroundings, probe

QUERIES, STEPS, BLOCK = 8, 7, 16


def drafter_inputs(
    lengths: list[int], launch: Any = None, room: int | None = None
) -> tuple[dict[str, torch.Tensor], list[int]]:
    """Run `prepare_dflash_inputs` for requests of these lengths, on torch's default device.

    Args:
        launch: called with each launch; by default nothing runs.
        room: tokens that the buffers hold.

    Returns:
        Its outputs, and the block constant of every kernel launch.
    """
    from vllm.v1.worker.gpu.spec_decode.dflash import speculator

    count, total = len(lengths), sum(lengths)
    width = room or count * QUERIES + total + 64
    starts = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
    positions = torch.cat([torch.arange(length) for length in lengths]).to(torch.int64)
    buffers: Any = SimpleNamespace(
        input_ids=torch.zeros(width, dtype=torch.int32),
        positions=torch.zeros(width, dtype=torch.int64),
        is_padding=torch.zeros(width, dtype=torch.bool),
        query_start_loc=torch.zeros(count + 1, dtype=torch.int32),
        seq_lens=torch.zeros(count, dtype=torch.int32),
    )
    batch: Any = SimpleNamespace(
        num_reqs=count,
        num_scheduled_tokens=np.array(lengths),
        positions=positions,
        query_start_loc=starts,
        idx_mapping=torch.arange(count, dtype=torch.int32),
    )
    outputs = {
        "query_slot_mapping": torch.zeros(width, dtype=torch.int64),
        "context_positions": torch.zeros(width, dtype=torch.int64),
        "context_slot_mapping": torch.zeros(width, dtype=torch.int64),
        "sample_indices": torch.zeros(count * STEPS, dtype=torch.int64),
        "sample_pos": torch.zeros(count * STEPS, dtype=torch.int64),
        "sample_idx_mapping": torch.zeros(count * STEPS, dtype=torch.int32),
        "temperature": torch.zeros(count),
        "seeds": torch.zeros(count, dtype=torch.int64),
    }
    blocks: list[int] = []
    kernel = speculator._prepare_dflash_inputs_kernel

    class Recorder:
        def __getitem__(self, grid: Any) -> Any:
            def run(*arguments: Any, **named: Any) -> None:
                blocks.append(named["BLOCK_SIZE"])
                if launch is not None:
                    launch(kernel, grid, arguments, named)

            return run

    with mock.patch.object(speculator, "_prepare_dflash_inputs_kernel", Recorder()):
        speculator.prepare_dflash_inputs(
            buffers,
            **outputs,
            input_batch=batch,
            num_sampled=torch.ones(count, dtype=torch.int32),
            num_rejected=torch.zeros(count, dtype=torch.int32),
            last_sampled=torch.arange(count, dtype=torch.int64) + 5,
            next_prefill_tokens=torch.zeros(count, dtype=torch.int32),
            input_temperature=torch.ones(count),
            input_seeds=torch.arange(count, dtype=torch.int64),
            block_table=torch.arange(count * 64, dtype=torch.int32).view(count, 64),
            block_size=BLOCK,
            cp_rank=0,
            cp_size=1,
            cp_interleave=1,
            parallel_drafting_token_id=7,
            num_query_per_req=QUERIES,
            num_speculative_steps=STEPS,
            max_num_reqs=count,
            max_num_tokens=width,
            max_model_len=1024,
        )
    return {**outputs, **vars(buffers)}, blocks


def as_is(kernel: Any, grid: Any, arguments: Any, named: Any) -> None:
    """A launch as vLLM makes it."""
    kernel[grid](*arguments, **named)


@probe("dflash-fixed-block")
def the_drafter_s_kernel_has_one_block_constant(s: Surroundings) -> None:
    lengths = (1, 8, 9, 40, 100, 250, 600)
    constants = {length: drafter_inputs([length])[1][0] for length in lengths}
    assert len(set(constants.values())) == 1, f"request length to block constant: {constants}"

    def with_16(kernel: Any, grid: Any, arguments: Any, named: Any) -> None:
        blocks = -(-(max(9, 3) + QUERIES) // 16)
        kernel[(grid[0], blocks)](*arguments, **{**named, "BLOCK_SIZE": 16})

    one, _ = drafter_inputs([9, 3], as_is)
    other, _ = drafter_inputs([9, 3], with_16)
    for name, value in one.items():
        assert torch.equal(value, other[name]), f"{name} depends on the block constant"


HEADS, WIDTH, DEPTH, TOKENS = 2, 32, 32, 2


@dataclass(frozen=True)
class Step:
    """Tokens of two requests, `TOKENS` each, for the fused recurrent update."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    a_log: torch.Tensor
    bias: torch.Tensor
    states: torch.Tensor

    @classmethod
    def drawn(cls) -> Step:
        draw = torch.Generator().manual_seed(5)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=draw)

        tokens = 2 * TOKENS
        return cls(
            q=normal(1, tokens, HEADS, WIDTH),
            k=normal(1, tokens, HEADS, WIDTH),
            v=normal(1, tokens, HEADS, DEPTH),
            a=normal(1, tokens, HEADS),
            b=normal(1, tokens, HEADS),
            a_log=normal(HEADS) * 0.1,
            bias=normal(HEADS) * 0.1,
            states=normal(6, HEADS, DEPTH, WIDTH),
        )

    def run(
        self, table: list[list[int]], accepted: list[int], device: str = "cpu"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs [tokens, heads, depth] and all states after a step on `device`; both come back to the CPU."""
        from vllm.third_party.flash_linear_attention.ops.fused_sigmoid_gating import (
            fused_sigmoid_gating_delta_rule_update,
        )

        def there(values: torch.Tensor | list[int] | list[list[int]]) -> torch.Tensor:
            if isinstance(values, torch.Tensor):
                return values.to(device, copy=True)
            return torch.tensor(values, dtype=torch.int32, device=device)

        states = there(self.states)
        out, _ = fused_sigmoid_gating_delta_rule_update(
            *map(there, (self.a_log, self.a, self.b, self.bias, self.q, self.k, self.v)),
            initial_state=states,
            cu_seqlens=there([0, TOKENS, 2 * TOKENS]),
            ssm_state_indices=there(table),
            num_accepted_tokens=there(accepted),
            use_qk_l2norm_in_kernel=True,
        )
        return out.view(2 * TOKENS, HEADS, DEPTH).cpu(), states.cpu()

    def expected(self, request: int, state: int) -> torch.Tensor:
        """The gated delta rule in plain torch: what a request's tokens give from a state."""
        rows = []
        h = self.states[state].clone()
        for t in range(request * TOKENS, (request + 1) * TOKENS):
            q, k = (torch.nn.functional.normalize(x[0, t], dim=-1) for x in (self.q, self.k))
            decay = torch.exp(-torch.exp(self.a_log) * torch.nn.functional.softplus(self.a[0, t] + self.bias))
            h = h * decay[:, None, None]
            error = self.v[0, t] - torch.einsum("hvk,hk->hv", h, k)
            h = h + (torch.sigmoid(self.b[0, t])[:, None] * error)[:, :, None] * k[:, None, :]
            rows.append(torch.einsum("hvk,hk->hv", h, q) * WIDTH**-0.5)
        return torch.stack(rows)


@probe("gdn-state-bounds")
def a_request_reaches_no_state_but_its_own(s: Surroundings) -> None:
    own_states_only("cpu")
    handed = counts_handed_on([0, 1, 3, 9, -2], drafts=2)
    assert handed == [1, 1, 3, 3, 1], f"the kernels are handed {handed}, columns outside a row of 3"


def counts_handed_on(accepted: list[int], drafts: int) -> list[int]:
    """The counts of accepted tokens that the layers get for these, one request each, all drafting."""
    from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadataBuilder

    count, width = len(accepted), drafts + 1
    builder: Any = object.__new__(GDNAttentionMetadataBuilder)
    builder.num_spec, builder.use_spec_decode, builder.use_full_cuda_graph = drafts, True, False
    builder.kv_cache_spec = SimpleNamespace()
    builder.vllm_config = SimpleNamespace(cache_config=SimpleNamespace(mamba_cache_mode="none"))
    starts = torch.arange(0, (count + 1) * width, width, dtype=torch.int32)
    batch: Any = SimpleNamespace(
        num_reqs=count,
        num_actual_tokens=count * width,
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=torch.full((count,), 100, dtype=torch.int32),
        block_table_tensor=torch.arange(count * width, dtype=torch.int32).view(count, width) + 1,
    )
    metadata = builder.build(0, batch, torch.tensor(accepted, dtype=torch.int32), torch.full((count,), drafts))
    return [int(number) for number in metadata.num_accepted_tokens]


def own_states_only(device: str) -> None:
    """The fused update reads and writes the states that a request's own row names, and no others."""
    step, table = Step.drawn(), [[1, 2], [3, 4]]
    out, states = step.run(table, [2, 1], device)
    for request, state in ((0, 2), (1, 3)):
        rows = out[request * TOKENS : (request + 1) * TOKENS]
        assert torch.allclose(rows, step.expected(request, state), atol=1e-4), f"request {request}: other values"
    assert torch.equal(states[0], step.states[0])
    assert torch.equal(states[5], step.states[5])
    for accepted, request, foreign in (([3, 1], 0, 3), ([1, 0], 1, 2)):
        out, states = step.run(table, accepted, device)
        rows = out[request * TOKENS : (request + 1) * TOKENS]
        used = torch.allclose(rows, step.expected(request, foreign), atol=1e-4)
        assert not used, f"with {accepted[request]} accepted tokens request {request} reads another request's state"
        assert not rows.any(), "the output of a row without a state is not zero"
        own = states[table[request]]
        assert torch.equal(own, step.states[table[request]]), "a state was written without having been read"
