"""Patches of the series that an engine needs; every other engine runs without them."""

from __future__ import annotations

from collections.abc import Callable

from packaging.version import Version

from qwenlab.planner.plan import Evidence
from qwenlab.planner.rules.context import HOPPER, Context
from qwenlab.planner.rules.model import Effect, Rule, Topic, always, needs_patch

MENDED_UPSTREAM = Version("0.33.0")


def _by_checkpoint(context: Context) -> Effect:
    return Effect(patches=context.checkpoint.patches, says={"key": context.checkpoint.key})


def _patch(
    name: str,
    when: str,
    because: str,
    source: str,
    applies: Callable[[Context], bool] = always,
    evidence: Evidence = Evidence.MEASURED,
) -> Rule:
    return Rule(
        id=f"patch-{name}",
        topic=Topic.PATCHES,
        when=when,
        applies=applies,
        then=needs_patch(name),
        because=because,
        source=source,
        evidence=evidence,
        sets=(name,),
    )


RULES = (
    _patch(
        "auth-deny-default",
        "always",
        "vLLM guards four path prefixes with the API key; the patch guards all but the probes",
        "vLLM 0.33.0 entrypoints/serve/middleware/authenticate.py; syv-ai/HyperQwen patches/auth-deny-default",
    ),
    _patch(
        "tool-call-close-truncated",
        "always",
        "an answer that ends inside a streamed tool call left clients with half a JSON document",
        "vllm-project/vllm PR #53739; ExTV/dual-gpus-vllm patch 02",
    ),
    _patch(
        "tool-call-nested-parameter-tag",
        "always",
        "tool arguments that contain a parameter tag (code about XML) were cut short",
        "ExTV/dual-gpus-vllm patch 03; vLLM 0.33.0 parser/qwen3.py",
    ),
    _patch(
        "pinned-pool-release",
        "a pinned KV pool",
        "with a pinned pool vLLM keeps the profile run's memory beside it; the patch gives it back",
        "vLLM 0.33.0 v1/worker/gpu_worker.py determine_available_memory; syv-ai/HyperQwen pinned-kv-empty-cache",
        lambda c: c.kv_bytes is not None,
    ),
    _patch(
        "kv-group-size",
        "DFlash2 with the patched grouping",
        "the drafter's five layers set the size of vLLM's KV groups and pad the 16 attention layers to 20: 25 % more "
        "memory per token",
        "ExTV/dual-gpus-vllm patch 11; vLLM 0.33.0 v1/core/kv_cache_planning.py",
        lambda c: c.method == "dflash" and c.shape.grouping_patched,
    ),
    _patch(
        "dflash-fixed-block",
        "DFlash2",
        "the drafter's input kernel is compiled anew for every request length; with one block size it is compiled once",
        "syv-ai/HyperQwen dflash2-prewarm; vLLM 0.33.0 spec_decode/dflash/speculator.py",
        lambda c: c.method == "dflash",
    ),
    _patch(
        "aux-hidden-states-over-pp",
        "DFlash2 over a pipeline",
        "the drafter reads layers of the first stages; stock vLLM does not carry them to the last and refuses to start",
        "ExTV/dual-gpus-vllm patch 08; vLLM 0.33.0 v1/worker/gpu/spec_decode/eagle/eagle3_utils.py",
        lambda c: c.method == "dflash" and c.shape.pp > 1,
    ),
    _patch(
        "mtp-shared-embedding-pp",
        "MTP over a pipeline",
        "the last stage holds the token embedding twice, its own and MTP's: 2.4 GiB",
        "ExTV/dual-gpus-vllm patch 05; vLLM 0.33.0 v1/worker/gpu/spec_decode/eagle/utils.py maybe_share_target_embed",
        lambda c: c.method == "mtp" and c.shape.pp > 1,
    ),
    _patch(
        "last-stage-embedding",
        "a pipeline whose last stage needs no embedding",
        "vLLM builds a second embedding on the last stage that only a drafter would use: 2.4 GiB",
        "vLLM 0.33.0 model_executor/models/qwen3_5.py; ExTV/dual-gpus-vllm patch 05",
        lambda c: c.shape.pp > 1 and c.shape.embedding_shared and c.method is None,
        Evidence.DERIVED,
    ),
    Rule(
        id="patch-pp-batch-cap",
        topic=Topic.PATCHES,
        when="speculation over a pipeline",
        applies=lambda c: c.shape.pp > 1 and c.method is not None and c.shape.in_flight_capped,
        then=lambda _: Effect(patches=("pp-batch-cap",), args={"additional-config": {"cap_pp_batches": True}}),
        because="one batch more than stages in flight deadlocks with speculation: three of five long prefills hung",
        source="vllm-project/vllm #53402; ExTV/dual-gpus-vllm patch 06",
        evidence=Evidence.MEASURED,
        sets=("pp-batch-cap", "additional-config"),
    ),
    _patch(
        "vision-tower-first-stage",
        "vision over a pipeline before vLLM 0.33",
        "every stage builds the vision tower that only the first runs: 0.86 GiB",
        "ExTV/dual-gpus-vllm patch 07; vLLM 0.33.0 model_executor/models/interfaces.py",
        lambda c: c.shape.pp > 1 and c.shape.vision and c.vllm < MENDED_UPSTREAM,
    ),
    _patch(
        "sampler-warmup-cuda",
        "speculation before vLLM 0.33",
        "the sampler's kernels are compiled during the first request unless the warm-up runs them",
        "vLLM 0.33.0 v1/worker/gpu/model_runner.py; syv-ai/HyperQwen spec-sampler-prewarm",
        lambda c: c.method is not None and c.vllm < MENDED_UPSTREAM,
    ),
    _patch(
        "gdn-state-bounds",
        "speculation",
        "a count of accepted tokens outside its row makes the recurrent kernel use another request's state; the guard "
        "masks the lookup",
        "vllm-project/vllm PR #50021; syv-ai/HyperQwen pr50021",
        lambda c: c.method is not None,
        Evidence.DERIVED,
    ),
    _patch(
        "cutlass-rows-sm90",
        "FP8 weights on compute capability 9.0",
        "CUTLASS's block FP8 chooses its tile by whether the rows are a multiple of four, not by how many there are: "
        "8,065 rows take 1,866 ms and 8,068 rows 364, 8 rows 13.1 ms and 9 rows 8.1; the patch adds what is missing",
        "vllm-project/vllm #44572, #56982; vLLM 0.33.0 on an NVIDIA H200 (bench/gpu)",
        lambda c: c.checkpoint.format == "fp8" and HOPPER in c.capabilities,
    ),
    Rule(
        id="patches-of-the-checkpoint",
        topic=Topic.PATCHES,
        when="a checkpoint that stock vLLM cannot load",
        applies=lambda c: bool(c.checkpoint.patches),
        then=_by_checkpoint,
        because="the tensors of {key} are quantized where stock vLLM expects plain ones",
        source="qwenlab data/checkpoints.yaml; ExTV/dual-gpus-vllm patches 08 and 12",
        evidence=Evidence.MEASURED,
        sets=("quantized-embedding",),
    ),
)
