"""Pipeline stages."""

# ruff: noqa: PT008 (plain functions stand in for plain functions)
from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from probes.registry import Surroundings, probe
from torch import nn

LAYERS, WIDTH = 9, 4
WANTED = (1, 3, 4, 8)  # 4 and 8: the borders of two and three stages


class _Layer(nn.Module):
    use_attn_reduce_scatter_for_moe = False

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def forward(self, positions: Any, hidden_states: Any, residual: Any) -> tuple[Any, Any]:
        grown = hidden_states * 0.5 + self.index
        return grown, hidden_states + (0 if residual is None else residual)


@contextmanager
def stage_of(rank: int, size: int) -> Iterator[Any]:
    """Everything that asks for the pipeline group is told: `rank` of `size`."""
    group = SimpleNamespace(
        world_size=size,
        rank_in_group=rank,
        is_first_rank=rank == 0,
        is_last_rank=rank == size - 1,
    )
    names = (
        "vllm.model_executor.models.qwen3_next.get_pp_group",
        "vllm.model_executor.models.qwen3_5.get_pp_group",
        "vllm.distributed.parallel_state.get_pp_group",
    )
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch(name, lambda: group))
        stack.enter_context(mock.patch("vllm.distributed.parallel_state.model_parallel_is_initialized", lambda: True))
        yield group


def model(start: int, end: int) -> Any:
    from vllm.model_executor.models.qwen3_5 import Qwen3_5Model

    made: Any = object.__new__(Qwen3_5Model)
    nn.Module.__init__(made)
    made.start_layer, made.end_layer = start, end
    made.layers = nn.ModuleList(_Layer(index) for index in range(LAYERS))
    made.norm = lambda hidden, residual: (hidden + residual, None)
    made.config = SimpleNamespace(hidden_size=WIDTH)
    made.do_not_compile = True
    return made


def run(borders: list[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Hidden states and auxiliary states that come out of stages with these borders."""
    from vllm.sequence import IntermediateTensors
    from vllm.v1.worker.gpu.spec_decode.eagle import eagle3_utils

    size = len(borders) - 1
    hidden = torch.arange(3 * WIDTH, dtype=torch.float32).view(3, WIDTH)
    carried: Any = None
    for rank in range(size):
        with stage_of(rank, size):
            stage = model(borders[rank], borders[rank + 1])
            holder = SimpleNamespace(model=stage)
            if size > 1:
                eagle3_utils.verify_supports_aux_hidden_states_over_pp(holder, "dflash")
            stage._set_aux_hidden_state_layers(WANTED)
            out = stage.forward(None, torch.arange(3), carried, hidden)
            relayed = eagle3_utils.aux_hidden_state_relay_keys(holder)
            if rank < size - 1:
                # as the runner does on a middle stage: what came in goes on, beside what was added
                received = carried.tensors if carried is not None else {}
                carried = IntermediateTensors({**out.tensors, **{key: received[key] for key in relayed}})
    return out


@probe("aux-hidden-states-over-pp")
def the_last_stage_has_what_one_stage_would_have(s: Surroundings) -> None:
    hidden, states = run([0, LAYERS])
    assert len(states) == len(WANTED)
    for borders in ([0, 4, LAYERS], [0, 8, LAYERS], [0, 1, 5, LAYERS], [0, 3, 4, 8, LAYERS]):
        try:
            piped, found = run(borders)
        except ValueError as error:
            raise AssertionError(str(error)) from None
        assert torch.equal(piped, hidden), f"{borders}: other hidden states"
        assert len(found) == len(states), f"{borders}: {len(found)} of {len(states)} states arrive"
        assert all(map(torch.equal, found, states)), f"{borders}: other states, or in another order"


@probe("vision-tower-first-stage")
def later_stages_build_no_vision_tower(s: Surroundings) -> None:
    first, later = tower_parameters(0), tower_parameters(1)
    assert first == 6, f"the first stage holds {first} parameters of the tower"
    assert later == 0, f"a later stage holds {later} parameters of the tower"
    assert tower_parameters(1, v2=False) == 6, "the V1 runner encodes on every stage"


def tower_parameters(rank: int, *, v2: bool = True) -> int:
    from vllm.model_executor.models.interfaces import SupportsMultiModal

    class Model(nn.Module, SupportsMultiModal):
        def __init__(self, config: Any) -> None:
            super().__init__()
            with self._mark_tower_model(config, {"image", "video"}):
                self.visual = nn.Linear(2, 3, bias=False)

    limits = SimpleNamespace(get_limit_per_prompt=lambda modality: 1)
    config = SimpleNamespace(model_config=SimpleNamespace(get_multimodal_config=lambda: limits), use_v2_model_runner=v2)
    group = SimpleNamespace(world_size=2, is_first_rank=rank == 0, is_last_rank=rank == 1)
    with mock.patch("vllm.distributed.get_pp_group", lambda: group):
        return sum(parameter.numel() for parameter in Model(config).parameters())
