"""What the user forces: it wins, and the plan says what would have been there and what is known against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from qwenlab.planner.plan import Evidence, Reason
from qwenlab.settings.foreign import vllm_options

SOURCE = "settings (qwen_engine_args, qwen_engine_env)"


@dataclass(frozen=True)
class Trap:
    """A forced value that is known to hurt; `bad` tells which values, `beside` among which arguments."""

    name: str
    bad: Callable[[Any], bool]
    text: str
    source: str
    beside: Callable[[Mapping[str, Any]], bool] = lambda _: True


def _any(_: Any) -> bool:
    return True


def _drafts_over_a_pipeline(args: Mapping[str, Any]) -> bool:
    return args.get("pipeline-parallel-size", 1) > 1 and bool(args.get("speculative-config"))


TRAPS = (
    Trap(
        "no-async-scheduling",
        lambda value: value is True,
        "with a drafter over a pipeline the synchronous scheduler asserts in prepare_inputs and the engine dies",
        "vllm-project/vllm #52071",
        beside=_drafts_over_a_pipeline,
    ),
    Trap(
        "VLLM_MARLIN_INPUT_DTYPE",
        lambda value: value == "",
        "an empty string is no data type and stops the boot; leave the variable out",
        "noonghunna/club-3090 docs/HARDWARE.md; syv-ai/HyperQwen #20",
    ),
    Trap(
        "NCCL_SHM_USE_CUDA_MEMCPY",
        lambda value: value == "1",
        "hung after compilation on a pair without peer access",
        "syv-ai/HyperQwen docs/multi-gpu.md, #190",
    ),
    Trap(
        "VLLM_SKIP_MODEL_NAME_VALIDATION",
        _any,
        "requests for a wrong model name are then answered instead of refused",
        "syv-ai/HyperQwen docs/vllm-0.31.md",
    ),
    Trap(
        "tool-call-parser",
        lambda value: value == "hermes",
        "the model writes XML tool calls, which this parser drops silently",
        "syv-ai/HyperQwen #31",
    ),
    Trap(
        "enforce-eager",
        lambda value: value is True,
        "no CUDA graphs: decode loses more than half of its speed on small batches",
        "vLLM 0.33.0 documentation, CUDA graphs",
    ),
    Trap(
        "kv-cache-dtype",
        lambda value: "turboquant" in str(value),
        "4-bit TurboQuant on a checkpoint without scales loses recall at every depth",
        "noonghunna/club-3090 docs/HARDWARE.md",
    ),
    Trap(
        "kv-cache-dtype",
        _any,
        "pool, context and seats of the plan were reckoned without it; qwen_kv_cache_dtype plans with it",
        "qwenlab memory model, docs/memory.md",
    ),
    Trap(
        "trust-remote-code",
        lambda value: value is True,
        "code from the checkpoint's repository runs as the service user; this model needs none",
        "vLLM 0.33.0 security guide",
    ),
    Trap(
        "max-num-batched-tokens",
        lambda value: isinstance(value, int) and value >= 8192,
        "large prefill chunks need workspace that a pinned pool leaves no room for on 24 GB cards",
        "syv-ai/HyperQwen docs/gotchas.md 7, 43",
    ),
)


@dataclass(frozen=True)
class Forced:
    """Arguments and variables with the user's in them, the reasons to add, and warnings."""

    args: dict[str, Any]
    env: dict[str, str]
    reasons: tuple[Reason, ...]
    warnings: tuple[str, ...]


# Fields of one option that say the same in two ways; vLLM refuses both, so that the user's takes the plan's away.
RIVALS = {"compilation-config": ("max_cudagraph_capture_size", "cudagraph_capture_sizes")}


def merged(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `extra` over it; nested mappings are merged key by key."""
    result = dict(base)
    for key, value in extra.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if both and isinstance(old, Mapping) else value
    return result


def switch(name: str) -> str:
    """One name for an on/off pair: `no-enable-x`, `disable-x` and `enable-x` are the same switch."""
    bare = name.removeprefix("no-")
    return "enable-" + bare.removeprefix("disable-") if bare.startswith("disable-") else bare


def spelt(name: str, value: Any) -> tuple[str, Any]:
    """An argument as vLLM's YAML reader needs it.

    A false switch is dropped in silence by vLLM 0.33.0 (utils/argparse_utils.py load_config_file looks for `--no-x`
    among the shown options, which are `--disable-x` now); `no-x: true` is read by every version.
    """
    name = name.removeprefix("--").replace("_", "-")
    if value is False:
        return (name.removeprefix("no-"), True) if name.startswith("no-") else (f"no-{name}", True)
    return name, value


def unknown(name: str) -> str | None:
    """A warning about an argument that vLLM would stop at; None for those that it has (`no-x`, `json-option.key`)."""
    bare = name.partition(".")[0]
    if {bare, bare.removeprefix("no-")} & vllm_options():
        return None
    near = get_close_matches(bare.removeprefix("no-"), sorted(vllm_options()), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return (
        f"qwen_engine_args: vLLM has no argument {name}, and an engine does not start with one it does not know{hint}"
    )


def force(
    args: Mapping[str, Any], env: Mapping[str, str], user_args: Mapping[str, Any], user_env: Mapping[str, str]
) -> Forced:
    """Lay the user's arguments and variables over the plan's. None takes an argument out."""
    reasons: list[Reason] = []
    warnings: list[str] = []
    result = dict(args)
    for key, given in user_args.items():
        name, value = spelt(key, given)
        if (doubt := unknown(name)) is not None:
            warnings.append(doubt)
        planned = {old: result.pop(old) for old in list(result) if old != name and switch(old) == switch(name)}
        if name in result:
            planned[name] = result.pop(name)
        if value is not None:
            result[name] = _over(planned.get(name), value, RIVALS.get(name, ()))
        reasons.append(_reason(name, value, planned))
    variables = dict(env)
    for name, text in user_env.items():
        reasons.append(_reason(name, text, {name: variables[name]} if name in variables else {}))
        variables[name] = text
    for name, value in (*result.items(), *variables.items()):
        if name not in {reason_name for reason in reasons for reason_name in reason.sets}:
            continue
        warnings += [
            f"{name}={value!s} is forced: {trap.text} ({trap.source})"
            for trap in TRAPS
            if trap.name == name and trap.bad(value) and trap.beside(result)
        ]
    return Forced(result, variables, tuple(reasons), tuple(warnings))


def _over(planned: Any, given: Any, rivals: tuple[str, ...]) -> Any:
    """The user's value over the plan's; of rival fields the plan's go as soon as the user names one."""
    if not (isinstance(planned, Mapping) and isinstance(given, Mapping)):
        return given
    gone = rivals if any(rival in given for rival in rivals) else ()
    return merged({field: value for field, value in planned.items() if field not in gone}, given)


def seats_of(args: Mapping[str, Any], planned: int) -> int:
    """The seats that an engine is started with: the user may have forced other ones than planned."""
    forced = args.get("max-num-seqs")
    return forced if isinstance(forced, int) and not isinstance(forced, bool) else planned


def _reason(name: str, value: Any, planned: Mapping[str, Any]) -> Reason:
    had = "; ".join(f"{old}={text}" for old, text in planned.items()) or "nothing"
    what = f"{name} is left out" if value is None else f"{name}={value} is forced"
    return Reason(
        rule="user-override",
        text=f"{what} by the settings; the plan had {had}",
        source=SOURCE,
        evidence=Evidence.DERIVED,
        sets=(name,),
    )
