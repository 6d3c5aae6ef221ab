"""The API: model, address, parsers, what clients rely on."""

from __future__ import annotations

from packaging.version import Version

from qwenlab.planner.plan import Evidence
from qwenlab.planner.rules.context import Context
from qwenlab.planner.rules.model import Effect, Rule, Topic, always, sets_args

TOOL_STRICTNESS = Version("0.31.0")


def _model(context: Context) -> Effect:
    args = {"model": context.model_path, "served-model-name": list(context.served_names)}
    return Effect(args=args, says={"repo": context.checkpoint.repo})


def _address(context: Context) -> Effect:
    args = {"host": context.host, "port": context.port}
    return Effect(args=args, says={"port": context.port, "place": context.index + 1})


RULES = (
    Rule(
        id="checkpoint",
        topic=Topic.SERVING,
        when="always",
        applies=always,
        then=_model,
        because="{repo}, read from the host's own verified copy under the names that clients ask for",
        source="qwenlab docs (checkpoints)",
        evidence=Evidence.DERIVED,
        sets=("model", "served-model-name"),
    ),
    Rule(
        id="address",
        topic=Topic.SERVING,
        when="always",
        applies=always,
        then=_address,
        because="engine {place} of the host answers on port {port}; without an API key on the loopback address only",
        source="syv-ai/HyperQwen #204, #169 (keyless servers found from outside)",
        evidence=Evidence.FIELD_REPORT,
        sets=("host", "port"),
    ),
    Rule(
        id="one-api-server",
        topic=Topic.SERVING,
        when="data parallel",
        applies=lambda c: c.shape.dp > 1,
        then=sets_args(api_server_count=1),
        because="vLLM would start one API server per replica; one serves this many and keeps metrics in one place",
        source="syv-ai/HyperQwen launchers; vLLM 0.33.0 entrypoints/cli/serve.py",
        evidence=Evidence.FIELD_REPORT,
        sets=("api-server-count",),
    ),
    Rule(
        id="reasoning-parser",
        topic=Topic.SERVING,
        when="always",
        applies=always,
        then=sets_args(reasoning_parser="qwen3"),
        because="the model thinks between <think> tags; the parser hands that to clients as reasoning, not as answer",
        source="syv-ai/HyperQwen launchers; ExTV/dual-gpus-vllm launchers",
        evidence=Evidence.MEASURED,
        sets=("reasoning-parser",),
    ),
    Rule(
        id="tool-parser",
        topic=Topic.SERVING,
        when="always",
        applies=always,
        then=sets_args(enable_auto_tool_choice=True, tool_call_parser="qwen3_coder"),
        because="the model writes tool calls as XML; the hermes parser, which many guides name, fails silently",
        source="syv-ai/HyperQwen #31; noonghunna/club-3090 docs/DUAL_CARD.md",
        evidence=Evidence.MEASURED,
        sets=("enable-auto-tool-choice", "tool-call-parser"),
    ),
    Rule(
        id="strict-tool-arguments",
        topic=Topic.SERVING,
        when="vLLM 0.31 and later",
        applies=lambda c: c.vllm >= TOOL_STRICTNESS,
        then=sets_args(tool_strict_level="parameter"),
        because="at the level `auto` 0.31 invented arguments for tools that take none, 20 times of 20",
        source="syv-ai/HyperQwen docs/vllm-0.31.md",
        evidence=Evidence.MEASURED,
        sets=("tool-strict-level",),
    ),
    Rule(
        id="cached-tokens-in-usage",
        topic=Topic.SERVING,
        when="always",
        applies=always,
        then=sets_args(enable_prompt_tokens_details=True),
        because="answers tell how many prompt tokens came from the cache: the one way for a client to see that prefix "
        "caching works",
        source="syv-ai/HyperQwen launchers, docs/gotchas.md 39",
        evidence=Evidence.MEASURED,
        sets=("enable-prompt-tokens-details",),
    ),
    Rule(
        id="keep-streams-alive",
        topic=Topic.SERVING,
        when="always",
        applies=always,
        then=sets_args(sse_keep_alive_interval=30),
        because="a long prefill is silent (a cold 90k prompt for 105 s) and proxies drop idle streams",
        source="syv-ai/HyperQwen docs/gotchas.md 55",
        evidence=Evidence.MEASURED,
        sets=("sse-keep-alive-interval",),
    ),
)
