"""The few numbers of an inventory that a person compares first: counts, link pairs, groups by PCIe label."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qwenlab.host_inventory import Ancestor, HostInventory, ParseState

_SWITCH = (Ancestor.PIX, Ancestor.PXB)
_ROOT = (*_SWITCH, Ancestor.PHB)
_NODE = (*_ROOT, Ancestor.NODE)


def summarise(inventory: HostInventory) -> dict[str, Any]:
    """A JSON-ready object. Relations are None when the host's could not be read.

    The groups join cards by the label that nvidia-smi prints for a pair; NVLink hides that label, so linked pairs
    join no group. Keys of `nvlink_pairs` are "a-b" by index.
    """
    count = inventory.topology_gpus if inventory.topology_gpus is not None else len(inventory.gpus)
    unreadable = inventory.parse is ParseState.ERROR and not inventory.gpus
    linked = [pair for pair in inventory.pairs if pair.nvlink_lanes]
    labelled = [pair for pair in inventory.pairs if not pair.nvlink_lanes and pair.ancestor]
    touched = {index for pair in linked for index in (pair.a, pair.b)}

    def groups(ancestors: Iterable[Ancestor]) -> list[list[int]]:
        return _components([(pair.a, pair.b) for pair in labelled if pair.ancestor in tuple(ancestors)])

    return {
        "parse": inventory.parse.value,
        "usable_gpus": len(inventory.usable_gpus),
        "gpu_count": None if unreadable else count,
        "nvlink_pairs": {f"{pair.a}-{pair.b}": pair.nvlink_lanes for pair in linked},
        "nvlink_all_to_all": count > 1 and bool(linked) and not labelled and len(touched) == count,
        "same_pcie_switch_groups": groups(_SWITCH),
        "same_root_complex_groups": groups(_ROOT),
        "same_numa_node_groups_by_label": groups(_NODE),
        "cross_socket_pairs": sum(pair.ancestor is Ancestor.SYS for pair in labelled),
        "numa_by_gpu": {str(gpu.index): gpu.numa_affinity for gpu in inventory.gpus if gpu.numa_affinity is not None},
        "nic_columns": list(inventory.nic_columns),
    }


def _components(edges: list[tuple[int, int]]) -> list[list[int]]:
    groups: list[set[int]] = []
    for edge in edges:
        touching = [group for group in groups if group & set(edge)]
        groups = [group for group in groups if group not in touching] + [set(edge).union(*touching)]
    return sorted(sorted(group) for group in groups)
