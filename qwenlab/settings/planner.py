"""Settings of the planner: what the cards are for, and what the user fixes instead of letting the planner choose."""

from __future__ import annotations

import re
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from qwenlab.settings.fields import SettingsGroup, setting

# vLLM arguments and variables that more than the engine depends on (the service, its checks, the plan's memory, the
# clients), or that are secret, and the settings that say them.
SETTING_OF = {
    "port": "qwen_port",
    "host": "qwen_bind",
    "model": "qwen_checkpoint",
    "model-tag": "qwen_checkpoint",
    "served-model-name": "qwen_served_model_names",
    "max-model-len": "qwen_context (of the cpu engine: qwen_cpu_context)",
    "tensor-parallel-size": "qwen_tensor_parallel",
    "pipeline-parallel-size": "qwen_pipeline_parallel",
    "data-parallel-size": "qwen_data_parallel",
    "api-key": "qwen_api_key_file",
    "hf-token": "qwen_hub_token_file",
    "ssl-keyfile": "qwen_gateway_key",
    "ssl-certfile": "qwen_gateway_certificate",
}
SETTING_OF_VARIABLE = {
    "CUDA_VISIBLE_DEVICES": "qwen_cards",
    "VLLM_API_KEY": "qwen_api_key_file",
    "HF_TOKEN": "qwen_hub_token_file",
    "HUGGING_FACE_HUB_TOKEN": "qwen_hub_token_file",
    "VLLM_PP_LAYER_PARTITION": "qwen_layer_split",
}
SECRET_NAME = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS|(API|ACCESS|SECRET|PRIVATE)_KEY)$", re.I)


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
    checkpoint: str | None = setting(
        None,
        "catalogue key, weight format or repository to serve: `int4-autoround`, `int4-prepared`, "
        "`int4-autoround-prepared`, `int4-fast`, `w8a16`, `fp8`, `fp8-channel`, `nvfp4`, `nvfp4-unsloth`, `bf16`, "
        "`qwen3.6-fp8`, `qwen3.6-bf16`; none: the planner's choice",
    )
    speculation: Literal["mtp", "dflash", "off"] | None = setting(
        None, "speculative decoding; none: the planner's choice"
    )
    draft_tokens: int | None = setting(None, "draft tokens per step; none: the planner's choice", ge=1, le=15)
    kv_cache_dtype: str | None = setting(
        None,
        "data type of the KV cache: `bfloat16`, `fp8`, `int4_per_token_head`, `int8_per_token_head`; none: the "
        "planner's choice",
    )
    tensor_parallel: Literal[1, 2, 4, 8] | None = setting(
        None, "cards, on the cpu engine processes, that share every layer; none: the planner's choice"
    )
    pipeline_parallel: int | None = setting(
        None, "pipeline stages of an engine; none: the planner's choice", ge=1, le=16
    )
    data_parallel: int | None = setting(
        None, "copies of an engine behind one port; none: the planner's choice", ge=1, le=16
    )
    layer_split: list[int] | None = setting(
        None, "decoder layers of each pipeline stage, first stage first, 64 in all; none: solved for speed"
    )
    cards: list[str] | None = setting(
        None, "cards to plan with, by UUID, PCI bus id or nvidia-smi index; none: every usable card"
    )
    nvlink_multicast: bool = setting(
        True, "engines may use NVLink multicast; turn it off where several tenants share one NVSwitch host"
    )
    tuned_block_fp8: bool = setting(
        False,
        "vLLM's tree holds configurations of its Triton block-FP8 kernel tuned on the host's cards of compute "
        "capability 8.9 (e.g. by `qwen_extra_patches`); FP8 weights then run on it there instead of on Marlin",
    )
    engine_args: dict[str, Any] = setting(
        {}, "vLLM arguments that win over the plan's, by their YAML name, e.g. `max-num-seqs: 16`"
    )
    engine_env: dict[str, str] = setting({}, "environment variables of the engines that win over the plan's")

    @field_validator("cards", mode="before")
    @classmethod
    def _indexes_are_numbers(cls, cards: object) -> object:
        if not isinstance(cards, list):
            return cards
        return [str(card) if isinstance(card, int) and not isinstance(card, bool) else card for card in cards]

    @field_validator("cards")
    @classmethod
    def _name_a_card(cls, cards: list[str] | None) -> list[str] | None:
        if cards is not None and (not cards or not all(card.strip() for card in cards)):
            raise ValueError("an entry names no card; leave the setting out to plan with every usable one")
        return cards

    @field_validator("tensor_parallel", mode="before")
    @classmethod
    def _is_a_number(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("Input should be 1, 2, 4 or 8")
        return value

    @field_validator("engine_env")
    @classmethod
    def _are_variables(cls, variables: dict[str, str]) -> dict[str, str]:
        for name, value in variables.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"{name!r} is no variable's name: letters, digits and _, no digit first")
            if any(letter in value for letter in "\n\r\0"):
                raise ValueError(f"the value of {name} has more than one line")
            if (own := SETTING_OF_VARIABLE.get(name)) is not None:
                raise ValueError(f"{name} is set by {own}")
            if SECRET_NAME.search(name):
                raise ValueError(f"{name} sounds like a secret, and the plan that shows it may be read by every user")
        return variables

    @field_validator("engine_args")
    @classmethod
    def _left_to_settings(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        for name in arguments:
            if (own := SETTING_OF.get(name.removeprefix("--").replace("_", "-"))) is not None:
                raise ValueError(f"{name} is set by {own}: plan, service, checks and clients read it from there")
            if not re.fullmatch(r"(--)?[A-Za-z][\w.-]*", name):
                raise ValueError(f"{name!r} is no argument's name")
        return arguments

    @model_validator(mode="after")
    def _planner_settings_agree(self) -> Self:
        if self.speculation == "off" and self.draft_tokens is not None:
            raise ValueError("qwen_speculation = 'off' drafts nothing, and qwen_draft_tokens is set: keep one of them")
        split, stages = self.layer_split, self.pipeline_parallel
        if split is not None and stages is not None and len(split) != stages:
            raise ValueError(f"qwen_layer_split has {len(split)} stages, qwen_pipeline_parallel says {stages}")
        if split is not None and (len(split) < 2 or min(split) < 1):
            raise ValueError("qwen_layer_split needs two stages or more, with at least one layer each")
        return self
