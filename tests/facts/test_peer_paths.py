"""What the way between two cards costs: PCIe access control and an IOMMU that peer traffic goes through."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwenlab.facts.inventory import build_inventory
from qwenlab.host_inventory import HostInventory
from tests.facts.hosts import codes, host, run_script, text_of
from tests.sim import inventory as sim
from tests.sim.local import SimRoot

TOPO = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t{0}\t0-31\t0\nGPU1\t{0}\t X \t0-31\t0\n"
READ = "\tGPU0\tGPU1\nGPU0\tX\t{0}\nGPU1\t{0}\tX\n"


@pytest.mark.parametrize(
    ("label", "access", "acs", "told"),
    [
        ("PIX", "GNS", "on", True),  # NVIDIA/nccl 667
        ("PHB", "OK", "on", True),  # NVIDIA/nccl 2079: two RTX 5880 Ada
        ("NODE", "OK", "on", True),  # vllm-project/vllm 51513: four RTX PRO 6000
        ("PHB", "GNS", "on", False),  # copies go through host memory anyway
        ("NV4", "OK", "on", False),  # NVLink passes no bridge
        ("NODE", "OK", "off", False),
        ("PIX", "OK", "", False),  # not root: nobody looked
    ],
)
def test_redirected_peer_traffic_is_told_wherever_peers_would_talk(
    label: str, access: str, acs: str, told: bool
) -> None:
    found = host(topo=TOPO.format(label), p2p_read=READ.format(access), acs=acs)
    assert len(found.pairs) == 1
    assert ("acs_redirects_peers" in codes(found)) is told


def behind_iommu(*domains: str) -> HostInventory:
    """Two cards that may read each other, each in an IOMMU group with that domain."""
    cards = [
        f"@device 0000:0{place}:00.0\nclass 0x030000\ndevice 0x2204\niommu_group/type {domain}\n"
        for place, domain in enumerate(domains, start=1)
    ]
    return host(pci="".join(cards), topo=TOPO.format("PHB"), p2p_read=READ.format("OK"))


@pytest.mark.parametrize(
    ("domains", "translates"),
    [
        (("DMA-FQ", "DMA-FQ"), True),
        (("identity", "DMA"), True),
        (("identity", "identity"), False),  # iommu=pt
    ],
)
def test_an_iommu_that_translates_is_named_where_peer_access_was_not_tested(
    domains: tuple[str, ...], translates: bool
) -> None:
    found = behind_iommu(*domains)
    assert found.iommu_translates is translates
    assert ("boot with iommu=pt" in text_of(found, "peer_access_untested")) is translates


def test_without_iommu_groups_nothing_is_said_of_one() -> None:
    found = host(topo=TOPO.format("PHB"), p2p_read=READ.format("OK"))
    assert found.iommu_translates is None
    assert "IOMMU" not in text_of(found, "peer_access_untested")


def test_a_verdict_ends_when_the_iommu_no_longer_translates() -> None:
    assert behind_iommu("DMA", "DMA").fingerprint != behind_iommu("identity", "identity").fingerprint


def test_the_gathering_script_asks_for_the_domain_of_each_card(tmp_path: Path) -> None:
    root = SimRoot.create(tmp_path, sim.load("2x4090"), "inventory")
    for card in (root.path / "sys/bus/pci/devices").iterdir():
        group = card / "iommu_group"
        group.mkdir()
        (group / "type").write_text("DMA-FQ\n")
    assert build_inventory(run_script(root)).iommu_translates is True
