"""What the way between two cards costs: PCIe access control that sends peer traffic through the IOMMU."""

from __future__ import annotations

import pytest

from tests.facts.hosts import codes, host

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
