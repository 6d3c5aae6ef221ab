"""From a bare host with a card to a driver that works and stays: the whole way, on Debian 13 and 12."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.deploying import Run
from tests.lab.drivers import Rack, rack
from tests.sim import inventory

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module", params=["trixie", "bookworm"])
def bare(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """A host whose card is held by nouveau."""
    with rack(tmp_path_factory.mktemp("driver"), request.param, packages=("unattended-upgrades",)) as made:
        made.stage.prepare(inventory.load("1x3090"))
        yield made


@pytest.fixture(scope="module")
def installed(bare: Rack) -> Run:
    """The first run."""
    return bare.run(qwen_allow_reboot=True)


def test_a_bare_host_ends_up_with_a_driver_that_lists_its_card(bare: Rack, installed: Run) -> None:
    assert installed.code == 0, installed.text
    assert "GeForce RTX 3090" in bare.say("nvidia-smi -L")
    assert bare.say("cat /sys/module/nvidia/version").strip() == "580.126.09"
    assert bare.say("modinfo -F license nvidia").strip() == "Dual MIT/GPL"
    assert bare.say("systemctl is-active nvidia-persistenced").strip() == "active"
    assert bare.say("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").strip() == "Enabled"


def test_the_second_run_changes_nothing(bare: Rack, installed: Run) -> None:
    before = bare.host.boot_id()
    again = bare.run(qwen_allow_reboot=True)
    assert again.code == 0, again.text
    assert again.changed == ()
    assert bare.host.boot_id() == before
