"""What can be told before any search: settings that this host cannot meet, and what its inventory found beside cards.

Every check names the setting, what was asked and what is there, so that nobody has to guess which override to loosen.
"""

from __future__ import annotations

from collections.abc import Iterator

from qwenlab.driver.tables import DEFAULT_BRANCH
from qwenlab.gpu_data import is_virtual
from qwenlab.host_inventory import HostInventory, Severity, Source
from qwenlab.planner.cards import UNIFIED_SHARE, is_cut, kept_gib, names, of_ram, spec_of
from qwenlab.planner.catalogue import DEFAULT_MODEL, CheckpointSpec, checkpoints
from qwenlab.planner.geometry import LEAST_STAGE_LAYERS
from qwenlab.planner.plan import Refusal
from qwenlab.planner.recipes import RECIPES, format_weight
from qwenlab.planner.shape import Card
from qwenlab.settings import Settings
from qwenlab.systems import processor_problem, system_problem

LAST_PORT = 65_535
TAKEN_GIB = 1.0  # less than that is a driver's or a display's own
# Warnings of the inventory that bear on the plan and read the same on every run: the plan lies in a file on the host,
# and counters (Xids, PCIe replays) would make each deploy write it anew.
TELLING = frozenset(
    {
        "bar1_full",
        "kernel_too_old",
        "nvlink_refused",
        "source_damaged",
        "source_unreadable",
        "sources_disagree",
        "topology_damaged",
        "unequal_power_limits",
        "wsl_linux_driver_installed",
    }
)
DRIVER_SOURCES = frozenset({Source.NVML, Source.NVIDIA_SMI, Source.GIVEN})
NO_DRIVER = (
    "no driver yet: links, peer access and memory in use are not known; the plan is made anew once the driver answers"
)

# CUDA_VISIBLE_DEVICES takes indexes and UUIDs alone (CUDA C++ Programming Guide, environment variables).
NO_UUID = (
    "the recording names no UUIDs: PCI addresses or indexes stand in CUDA_VISIBLE_DEVICES here, and CUDA takes no "
    "addresses; a plan made on the host itself, or with `nvidia-smi -L`, names UUIDs"
)


def impossible(inventory: HostInventory, settings: Settings, cards: tuple[Card, ...]) -> tuple[Refusal, ...]:
    """The settings that no plan for these cards can meet, each in words; empty when a search is worth it."""
    missing = tuple(_missing_cards(inventory, settings))
    if missing:
        return (Refusal(code="not-selected", text="; ".join(missing)),)
    if not cards:
        return ()
    texts = (
        *_unknown_names(settings),
        *_contradictions(settings, cards),
        *_layer_split(settings),
        *_too_few_cards(settings, len(cards)),
    )
    return tuple(Refusal(code="override-impossible", text=text) for text in texts)


def ports_refusal(settings: Settings, engines: int) -> Refusal | None:
    """Why the engines' ports, counted from qwen_port, do not exist or are another's; None when all is well."""
    last = settings.port + engines - 1
    own = (
        f"1 engine takes port {last}" if engines == 1 else f"{engines} engines take the ports {settings.port} to {last}"
    )
    if last > LAST_PORT:
        text = f"{own}, and ports end at {LAST_PORT}; choose {LAST_PORT - engines + 1} or less"
        return Refusal(code="port-out-of-range", text=text)
    for key, port in settings.listeners:
        if settings.port <= port <= last:
            text = f"{own}, and {port} is that of {key}; give one of them another port"
            return Refusal(code="port-taken", text=text)
    return None


def host_errors(inventory: HostInventory) -> tuple[Refusal, ...]:
    """What keeps the whole host from serving, by the inventory's own diagnosis."""
    return tuple(
        Refusal(code=one.code.replace("_", "-"), text=one.text)
        for one in inventory.diagnoses
        if one.severity is Severity.ERROR and one.gpu is None
    )


def unreadable(inventory: HostInventory) -> str:
    """What could not be read of a host on which no card was found; empty when everything could."""
    return "; ".join(one.text for one in inventory.diagnoses if one.code in TELLING)


def notes(inventory: HostInventory, cards: tuple[Card, ...]) -> tuple[str, ...]:
    """What the owner should know about the host beside its plan."""
    found = [
        one.text
        for one in inventory.diagnoses
        if one.severity is Severity.ERROR or (one.severity is Severity.WARNING and one.code in TELLING)
    ]
    share = kept_gib(inventory)
    planned = {card.index for card in cards}
    found += [
        f"{gpu.name or 'a card without a name'} ({gpu.uuid or gpu.pci_bus_id or gpu.index}) is not in the device "
        "table: it is planned with cautious figures, and the speeds told for it mean little"
        for gpu in inventory.gpus
        if gpu.index in planned and spec_of(gpu) is None
    ]
    found += [
        f"nvidia-smi cut the name {gpu.name}: it is planned as the slowest card of that name and memory, {spec.name}"
        for gpu in inventory.gpus
        if gpu.index in planned and is_cut(gpu) and (spec := spec_of(gpu)) is not None
    ]
    found += [
        f"{gpu.name} has no memory of its own: the plan takes at most {UNIFIED_SHARE:.0%} of the host's RAM that is "
        "available now, since start-up takes more than the engine keeps, and with full RAM the whole host stops"
        for gpu in inventory.gpus
        if gpu.index in planned and of_ram(gpu, inventory)
    ]
    found += [
        f"{card.name} is a share of a card (vGPU): others take their part of the speed told here; it needs a licence "
        "and a profile of type C or Q"
        for card in cards
        if is_virtual(card.name)
    ]
    for card in cards:
        taken = card.in_use_gib - share
        if taken >= TAKEN_GIB:
            found.append(
                f"{card.name} ({card.uuid}): {taken:.1f} GiB are held by other programs, and the plan leaves them that"
            )
    if driverless(inventory):
        found.append(NO_DRIVER)
    elif any(gpu.uuid is None for gpu in inventory.gpus if gpu.index in planned):
        found.append(NO_UUID)
    return tuple(found)


def obstacles(inventory: HostInventory, settings: Settings) -> tuple[str, ...]:
    """What keeps this plan from being deployed, as far as the inventory tells: it is refused, or its engine ends."""
    found = []
    system = inventory.os
    if system.id is not None and (problem := system_problem(system.id, system.version_id, system.pretty_name)):
        found.append(problem)
    if system.architecture is not None and (problem := processor_problem(system.architecture, settings)):
        found.append(problem)
    loaded = inventory.driver.loaded
    branch = (loaded or "").partition(".")[0]
    if branch.isdecimal() and int(branch) < DEFAULT_BRANCH and settings.asked_branch is None:
        what = (
            "update the Windows driver" if inventory.wsl2 else f"qwen_driver_branch = {DEFAULT_BRANCH} has it replaced"
        )
        found.append(f"driver {loaded} is older than {DEFAULT_BRANCH}, which CUDA 13 needs: {what}")
    return tuple(f"not to be deployed like this: {text}" for text in found)


def driverless(inventory: HostInventory) -> bool:
    """Whether the cards are known from the PCI bus alone."""
    known = [gpu for gpu in inventory.gpus if gpu.usable]
    return (
        bool(known)
        and inventory.driver.loaded is None
        and not any(DRIVER_SOURCES & set(gpu.provenance.values()) for gpu in known)
    )


def checkpoint_names() -> tuple[str, ...]:
    """What qwen_checkpoint takes beside repositories: the catalogue's keys and weight formats."""
    return tuple(dict.fromkeys(word for spec in checkpoints().values() for word in (spec.key, spec.format)))


def kv_dtype_names() -> tuple[str, ...]:
    """What qwen_kv_cache_dtype takes: the data types that a recipe serves."""
    return tuple(sorted({recipe.kv_dtype for recipe in RECIPES}))


def _named(settings: Settings) -> list[CheckpointSpec]:
    word = settings.checkpoint
    if word is None:
        return [spec for spec in checkpoints().values() if spec.model == DEFAULT_MODEL]
    return [spec for spec in checkpoints().values() if spec.named(word)]


def _missing_cards(inventory: HostInventory, settings: Settings) -> Iterator[str]:
    """Entries of qwen_cards that name nothing on a host that has cards."""
    if not inventory.gpus or settings.cards is None:
        return
    there = ", ".join(f"{gpu.index} ({gpu.uuid or gpu.pci_bus_id or gpu.name})" for gpu in inventory.gpus)
    for word in settings.cards:
        if not any(names(word, gpu) for gpu in inventory.gpus):
            yield f"qwen_cards: no card {word}; there is {there}"


def _unknown_names(settings: Settings) -> Iterator[str]:
    if not _named(settings):
        yield (
            f"qwen_checkpoint = {settings.checkpoint!r} is in no catalogue; there is {', '.join(checkpoint_names())}, "
            "or a repository of docs/checkpoints.md"
        )
    if settings.kv_cache_dtype is not None and settings.kv_cache_dtype not in kv_dtype_names():
        yield f"qwen_kv_cache_dtype = {settings.kv_cache_dtype!r}: there is {', '.join(kv_dtype_names())}"


def _contradictions(settings: Settings, cards: tuple[Card, ...]) -> Iterator[str]:
    """Settings that rule each other out on any host."""
    named = _named(settings)
    if settings.checkpoint is not None and named and not any(format_weight(s, cards, settings.quality) for s in named):
        yield (
            f"qwen_quality = {settings.quality!r} takes 8 bits and more only, and qwen_checkpoint = "
            f"{settings.checkpoint!r} has fewer: leave one of them out"
        )
    if settings.speculation == "mtp" and ((settings.pipeline_parallel or 1) > 1 or settings.layer_split is not None):
        key = "qwen_layer_split" if settings.layer_split is not None else "qwen_pipeline_parallel"
        yield f"qwen_speculation = 'mtp' does not draft over a pipeline, and {key} asks for one: take 'dflash' or 'off'"


def _layer_split(settings: Settings) -> Iterator[str]:
    split = settings.layer_split
    if split is None:
        return
    for count in sorted({spec.geometry.layers for spec in _named(settings)}):
        if sum(split) != count:
            yield (
                f"qwen_layer_split = {split} adds up to {sum(split)}: the parts must add up to {count}, at least 1 "
                "each, and there must be as many of them as pipeline stages"
            )
        elif min(split) < LEAST_STAGE_LAYERS:
            yield (
                f"qwen_layer_split = {split}: a stage of fewer than {LEAST_STAGE_LAYERS} layers may hold no "
                "full-attention layer, and the engine then does not start"
            )


def _too_few_cards(settings: Settings, have: int) -> Iterator[str]:
    """More cards asked for than there are; one text for all parallel sizes together."""
    stages = settings.pipeline_parallel or (len(settings.layer_split) if settings.layer_split else None)
    by_split = settings.pipeline_parallel is None
    sizes = {
        "qwen_tensor_parallel": settings.tensor_parallel,
        "qwen_layer_split (stages)" if by_split else "qwen_pipeline_parallel": stages,
        "qwen_data_parallel": settings.data_parallel,
    }
    needed = 1
    for size in sizes.values():
        needed *= size or 1
    if needed > have:
        asked = ", ".join(f"{name} = {size}" for name, size in sizes.items() if size is not None and size > 1)
        cards = "1 card" if have == 1 else f"{have} cards"
        yield f"{cards}, {needed} needed: {asked}"
