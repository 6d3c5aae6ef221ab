"""Hosts as the probe tells them, for tables."""

from __future__ import annotations

from typing import Any

from qwenlab.driver.state import Card, DriverState, Package
from qwenlab.settings import Settings, load

KERNEL = "6.12.48-amd64"
RTX_3090, RTX_5090, GTX_1080, V100, H100, B200, GTX_780 = "2204", "2b85", "1b80", "1db1", "2330", "2901", "1004"


def cards(*device_ids: str, driver: str = "nouveau") -> tuple[Card, ...]:
    """Cards on the bus, in order."""
    return tuple(Card(f"0000:{place:02x}:00.0", one, driver) for place, one in enumerate(device_ids, 1))


def bare(*device_ids: str, os: str = "debian", release: str = "13", **more: Any) -> DriverState:
    """Cards, and no driver."""
    return DriverState(
        **{
            "os": os,
            "release": release,
            "architecture": "x86_64",
            "running": KERNEL,
            "boot_kernel": KERNEL,
            "cards": cards(*(device_ids or (RTX_3090,))),
            **more,
        }
    )


def debian_packages(version: str, flavour: str = "open") -> dict[str, Package]:
    """The compute set of Debian."""
    module = "nvidia-kernel-open-dkms" if flavour == "open" else "nvidia-kernel-dkms"
    names = ("nvidia-driver-cuda", module, "libnvidia-ml1", "libcuda1", "nvidia-persistenced")
    return {name: Package(f"{version}-1", "ii", "nvidia-graphics-drivers") for name in names}


def installed(*device_ids: str, version: str = "580.126.09", flavour: str = "open", **more: Any) -> DriverState:
    """The packages are there, nothing is loaded."""
    found: dict[str, Any] = {
        "packages": debian_packages(version, flavour),
        "module": version,
        "module_open": flavour == "open",
        "smi_code": 9,
        **more,
    }
    return bare(*device_ids, **found)


def working(*device_ids: str, version: str = "580.126.09", flavour: str = "open", **more: Any) -> DriverState:
    """nvidia-smi lists every card."""
    ids = device_ids or (RTX_3090,)
    found: dict[str, Any] = {
        "loaded": version,
        "loaded_open": flavour == "open",
        "smi_code": 0,
        "smi": tuple(f"GPU {place}: a card (UUID: GPU-{place})" for place in range(len(ids))),
        **more,
    }
    return installed(*ids, version=version, flavour=flavour, **found)


def wishes(**more: Any) -> Settings:
    """Settings of a host with cards."""
    return load({f"qwen_{key}": value for key, value in more.items()})
