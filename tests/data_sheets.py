"""Data sheets of the device table, for tests that know the card is in it."""

from __future__ import annotations

from qwenlab.gpu_data import GpuSpec, find


def data_sheet(*, name: str | None = None, device_id: str | int | None = None) -> GpuSpec:
    """The card with this name or PCI device id."""
    spec = find(name=name, device_id=device_id)
    assert spec is not None, (name, device_id)
    return spec
