"""A measured engine: which measurement holds for it, and what it changes.

A measurement says what the engine takes of each card beside its KV pool. It replaces the memory model's parts; the
room that stays free and what others hold on the card are the planner's as ever. So it goes on holding when a desktop
takes more, and ends when one of its inputs changes.
"""

from __future__ import annotations

from dataclasses import replace

from qwenlab.host_inventory import HostInventory
from qwenlab.measurement import MeasuredWith, Measurement
from qwenlab.planner.memory import budget
from qwenlab.planner.plan import EnginePlan, Evidence, Measured, Reason
from qwenlab.planner.shape import EngineShape
from qwenlab.planner.sizing import LONGEST, PROBE_TOKENS, longest_window

# What a plan derives from the pool, or what the memory does not depend on.
OF_THE_POOL = ("kv-cache-memory-bytes", "num-gpu-blocks-override", "gpu-memory-utilization", "max-model-len")
PLAY = "plays/calibrate.py"


def measured_with(engine: EnginePlan, inventory: HostInventory, vllm: str) -> MeasuredWith:
    """What a measurement of this engine, planned without any, depends on."""
    split = f" split={','.join(str(layers) for layers in engine.partition)}" if engine.partition else ""
    made = MeasuredWith(
        vllm=vllm,
        driver=inventory.driver.loaded,
        checkpoint=engine.checkpoint.place,
        drafter=engine.drafter.place if engine.drafter else None,
        cards=engine.gpus,
        layout=f"tp={engine.tp} pp={engine.pp} dp={engine.dp}{split}",
        patches=tuple(sorted(engine.patches)),
        args={name: value for name, value in engine.args.items() if name not in OF_THE_POOL},
        env=engine.env,
    )
    # as it comes back from the host: JSON knows no tuples
    return MeasuredWith.model_validate_json(made.model_dump_json())


def measurement_of(engine: EnginePlan, inventory: HostInventory, vllm: str) -> Measurement | None:
    """The measurement that holds for this engine."""
    inputs = measured_with(engine, inventory, vllm)
    return next((one for one in inventory.measurements if one.inputs == inputs), None)


def expired(engine: EnginePlan, inventory: HostInventory, vllm: str) -> str | None:
    """Words when this engine was measured with something else; None when it was not, or the measurement holds."""
    inputs = measured_with(engine, inventory, vllm)
    former = next((one for one in inventory.measurements if one.engine == engine.name), None)
    if former is None or any(one.inputs == inputs for one in inventory.measurements):
        return None
    changes = "; ".join(former.inputs.differences(inputs))
    return f"the measurement of {engine.name} ({former.at}) no longer holds ({changes}): {PLAY} measures again"


def with_measurement(shape: EngineShape, found: Measurement, *, context_given: bool) -> EngineShape | str:
    """The shape with its measured memory, or words why the measurement cannot be used.

    Without a context of the user's own the window follows the measured pool, up or down.
    """
    if len(found.beside_gib) != len(shape.cards):
        return f"the measurement of {found.engine} names {len(found.beside_gib)} ranks: {PLAY} measures again"
    measured = replace(shape, beside_gib=found.beside_gib)
    if not context_given:
        length = longest_window(replace(measured, max_model_len=LONGEST))
        measured = replace(measured, max_model_len=length) if length else measured
    pool = budget(measured).pool
    if pool is not None:
        seats = max(1, min(measured.max_num_seqs, pool.seats(min(PROBE_TOKENS, measured.max_model_len))))
        measured = replace(measured, max_num_seqs=seats)
    why = budget(measured).why
    if why is not None:
        return f"by what {PLAY} measured at {found.at}, {found.engine} does not fit ({why}): lower qwen_context"
    return measured


def as_measured(engine: EnginePlan, found: Measurement) -> EnginePlan:
    """The plan with what was measured, and the reason that says so."""
    driver = f", driver {found.inputs.driver}" if found.inputs.driver else ""
    beside = ", ".join(f"{gib:.2f}" for gib in found.beside_gib)
    pool = f"{found.kv_tokens:,} tokens" if found.kv_tokens is not None else "a pool of unknown size"
    text = f"measured on this host at {found.at} (vLLM {found.inputs.vllm}{driver}): " + (
        f"{beside} GiB a card beside the pool, by rank" if beside else f"vLLM made {pool} of what it is given"
    )
    return engine.model_copy(
        update={
            "measured": Measured(
                at=found.at,
                vllm=found.inputs.vllm,
                driver=found.inputs.driver,
                beside_gib=found.beside_gib,
                kv_tokens=found.kv_tokens,
                transports=found.transports,
                all_reduce=found.all_reduce,
            ),
            "reasons": (
                *engine.reasons,
                Reason(rule="measured-memory", text=text, source=PLAY, evidence=Evidence.MEASURED),
            ),
        }
    )
