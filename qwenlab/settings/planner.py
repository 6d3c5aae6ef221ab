"""Settings of the planner: what the cards are for, and what the user fixes instead of letting the planner choose."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import model_validator

from qwenlab.settings.fields import SettingsGroup, setting


class PlannerSettings(SettingsGroup):
    """What the host is asked to be good at, and overrides. An override wins; the plan says what it costs."""

    workload: Literal["chat", "batch", "long", "edit"] = setting(
        "chat",
        "what to be good at: `chat` (1 to 4 people), `batch` (8 and more requests at once), `long` (150,000 tokens of "
        "context and more), `edit` (answers quote the prompt)",
    )
    context: int | None = setting(
        None,
        "tokens that one request must be able to hold; none: as many as fit, up to the model's own limit",
        unit="tokens",
        ge=1024,
        le=1_048_576,
    )
    concurrency: int | None = setting(
        None, "requests at the same time over the whole host; none: the workload's usual", ge=1, le=4096
    )
    vision: bool = setting(False, "load the vision tower and take images")
    quality: Literal["speed", "balanced", "fidelity"] = setting(
        "balanced",
        "weight formats: `speed` takes the fastest, `balanced` asks 4-bit weights to be a tenth faster than 8-bit "
        "ones, `fidelity` takes 8 bits and more only",
    )
    checkpoint: str | None = setting(None, "catalogue key or weight format to serve; none: the planner's choice")
    speculation: Literal["mtp", "dflash", "off"] | None = setting(
        None, "speculative decoding; none: the planner's choice"
    )
    draft_tokens: int | None = setting(None, "draft tokens per step; none: the planner's choice", ge=1, le=15)
    kv_cache_dtype: str | None = setting(None, "data type of the KV cache; none: the planner's choice")
    tensor_parallel: Literal[1, 2, 4, 8] | None = setting(
        None, "cards that share every layer; none: the planner's choice"
    )
    pipeline_parallel: int | None = setting(
        None, "pipeline stages of an engine; none: the planner's choice", ge=1, le=16
    )
    data_parallel: int | None = setting(
        None, "copies of an engine behind one port; none: the planner's choice", ge=1, le=16
    )
    layer_split: list[int] | None = setting(
        None, "decoder layers of each pipeline stage, first stage first; none: solved for speed"
    )
    cards: list[str] | None = setting(
        None, "cards to plan with, by UUID, PCI bus id or nvidia-smi index; none: every usable card"
    )
    nvlink_multicast: bool = setting(
        True, "engines may use NVLink multicast; turn it off where several tenants share one NVSwitch host"
    )
    engine_args: dict[str, Any] = setting(
        {}, "vLLM arguments that win over the plan's, by their YAML name, e.g. `max-num-seqs: 16`"
    )
    engine_env: dict[str, str] = setting({}, "environment variables of the engines that win over the plan's")

    @model_validator(mode="after")
    def _layer_split_agrees(self) -> Self:
        split, stages = self.layer_split, self.pipeline_parallel
        if split is not None and stages is not None and len(split) != stages:
            raise ValueError(f"qwen_layer_split has {len(split)} stages, qwen_pipeline_parallel says {stages}")
        if split is not None and (len(split) < 2 or min(split) < 1):
            raise ValueError("qwen_layer_split needs two stages or more, with at least one layer each")
        return self
