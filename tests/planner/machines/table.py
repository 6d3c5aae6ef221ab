"""The matrix: machines of the published recipes first, then what people have on their desks and in racks."""

from __future__ import annotations

from qwenlab.host_inventory import Ancestor, HostInventory
from tests.planner.machines.build import Machine, machine

Cards = tuple[tuple[str, float | None], ...]


def _cards(*names: str) -> Cards:
    """ "RTX 3080:20" names a card with 20 GiB."""
    parts = [name.split(":") for name in names]
    return tuple((part[0], float(part[1]) if len(part) > 1 else None) for part in parts)


def _n(count: int, name: str) -> Cards:
    return _cards(*[name] * count)


MACHINES: tuple[Machine, ...] = (
    # published recipes and reports
    Machine("1x3090", _n(1, "RTX 3090")),
    Machine("2x3090-nvlink", _n(2, "RTX 3090"), "nvlink"),
    Machine("2x3090-pcie", _n(2, "RTX 3090"), lanes=8),
    Machine("2x3090-peer", _n(2, "RTX 3090"), "peer", lanes=8),
    Machine("3x3090", _n(3, "RTX 3090")),
    Machine("3x3090-one-bridge", _n(3, "RTX 3090"), "nvlink", bridges=((0, 2),)),
    Machine("4x3090-two-bridges", _n(4, "RTX 3090"), "nvlink", bridges=((0, 2), (1, 3))),
    Machine("4x3090-pcie", _n(4, "RTX 3090")),
    Machine("4x5060ti-peer", _n(4, "RTX 5060 Ti"), "peer", Ancestor.PHB, lanes=8),
    Machine("2x5060ti", _n(2, "RTX 5060 Ti"), lanes=8),
    Machine("2x4090", _n(2, "RTX 4090"), lanes=8),
    Machine("2x4090-wsl2", _n(2, "RTX 4090"), wsl2=True, lanes=8),
    Machine("4x3060ti", _n(4, "RTX 3060 Ti")),
    Machine("2x3060", _n(2, "RTX 3060")),
    Machine("2x3060-peer", _n(2, "RTX 3060"), "peer"),
    Machine("3090+a4000", _cards("RTX 3090", "RTX A4000")),
    Machine("5090+4070tisuper", _cards("RTX 5090", "RTX 4070 Ti SUPER"), used_mib=(400, 0), lanes=4, ram_gib=31),
    Machine("5080+3080", _cards("RTX 3080:10", "RTX 5080")),
    Machine("8xh100", _n(8, "H100 80GB HBM3"), "nvswitch", Ancestor.NODE, ram_gib=1024),
    Machine("1xh200", _n(1, "NVIDIA H200"), ram_gib=256),
    Machine("2xh200", _n(2, "NVIDIA H200"), "nvlink", Ancestor.NODE, ram_gib=256),
    Machine("1x4090-wsl2", _n(1, "RTX 4090"), wsl2=True, used_mib=(900,)),
    Machine("laptop-8gb", _n(1, "RTX 4070 Laptop GPU"), used_mib=(600,), ram_gib=16),
    Machine("4xa5000", _n(4, "RTX A5000"), ram_gib=256),
    Machine("2x3080-20gb", _cards("RTX 3080:20", "RTX 3080:20")),
    Machine("1xl40s", _n(1, "L40S")),
    Machine("1xpro4000sff", _n(1, "RTX PRO 4000 Blackwell SFF Edition")),
    Machine("2x5090", _n(2, "RTX 5090"), lanes=8),
    Machine("1x5090", _n(1, "RTX 5090")),
    Machine("5090+3090ti", _cards("RTX 5090", "RTX 3090 Ti"), lanes=8),
    Machine("a5000+3090", _cards("RTX A5000", "RTX 3090"), lanes=4),
    Machine("3090+5070ti", _cards("RTX 3090", "RTX 5070 Ti"), lanes=4),
    Machine("5090+2x3080-20gb", _cards("RTX 5090", "RTX 3080:20", "RTX 3080:20")),
    # one card
    Machine("1x3090ti", _n(1, "RTX 3090 Ti")),
    Machine("1x4090", _n(1, "RTX 4090")),
    Machine("1x4090-desktop", _n(1, "RTX 4090"), used_mib=(1800,)),
    Machine("1x5080", _n(1, "RTX 5080")),
    Machine("1x4060ti-16gb", _cards("RTX 4060 Ti:16")),
    Machine("1x3060", _n(1, "RTX 3060")),
    Machine("1xa6000", _n(1, "RTX A6000")),
    Machine("1xada6000", _n(1, "RTX 6000 Ada Generation")),
    Machine("1xpro6000", _n(1, "RTX PRO 6000 Blackwell Workstation Edition")),
    Machine("1xa100-40gb", _n(1, "A100-SXM4-40GB")),
    Machine("1xa100-80gb", _n(1, "A100-SXM4-80GB")),
    Machine("1xl4", _n(1, "L4")),
    Machine("1xb200", _n(1, "B200"), ram_gib=512),
    # several alike
    Machine("3x3060", _n(3, "RTX 3060")),
    Machine("4x3060", _n(4, "RTX 3060")),
    Machine("5x3090", _n(5, "RTX 3090")),
    Machine("6x3090", _n(6, "RTX 3090")),
    Machine("7x3090", _n(7, "RTX 3090")),
    Machine("8x3090-four-bridges", _n(8, "RTX 3090"), "nvlink", bridges=((0, 4), (1, 5), (2, 6), (3, 7))),
    Machine("10x3090", _n(10, "RTX 3090"), ancestor=Ancestor.SYS, ram_gib=256),
    Machine("4xl40s", _n(4, "L40S"), "peer", Ancestor.NODE, ram_gib=512),
    Machine("8xa100-80gb", _n(8, "A100-SXM4-80GB"), "nvswitch", Ancestor.NODE, ram_gib=1024),
    Machine("4xpro6000", _n(4, "RTX PRO 6000 Blackwell Workstation Edition"), "peer", Ancestor.NODE, ram_gib=512),
    Machine("2xa6000-nvlink", _n(2, "RTX A6000"), "nvlink"),
    Machine("8xb200", _n(8, "B200"), "nvswitch", Ancestor.NODE, ram_gib=2048),
    Machine("4xl4", _n(4, "L4"), ancestor=Ancestor.NODE, ram_gib=192),
    # mixed
    Machine("4090+3090", _cards("RTX 4090", "RTX 3090")),
    Machine("5090+4090", _cards("RTX 4090", "RTX 5090")),
    Machine("2x3090+2x3060", _cards("RTX 3090", "RTX 3060", "RTX 3090", "RTX 3060")),
    Machine("3090+3060", _cards("RTX 3060", "RTX 3090")),
    Machine("a6000+2x3090-bridge", _cards("RTX A6000", "RTX 3090", "RTX 3090"), "nvlink", bridges=((1, 2),)),
    Machine("4070+3060", _cards("RTX 4070", "RTX 3060")),
    Machine("4060ti16+3060", _cards("RTX 4060 Ti:16", "RTX 3060")),
    Machine("pro6000+5090", _cards("RTX 5090", "RTX PRO 6000 Blackwell Workstation Edition")),
    Machine(
        "16-mixed",
        _cards(*["RTX 3090"] * 4, *["RTX 3060"] * 4, *["RTX 4090"] * 3, *["RTX 5060 Ti"] * 3, "RTX A6000", "RTX 5090"),
        ancestor=Ancestor.SYS,
        ram_gib=256,
    ),
)


def inventories() -> dict[str, HostInventory]:
    """Every machine by name."""
    return {entry.name: machine(entry) for entry in MACHINES}
