"""One engine of two tensor-parallel ranks: what `systemctl` and a fault do with them."""

from __future__ import annotations

import pytest

from tests.lab.deploying import ask
from tests.lab.serving import QUICK, UNIT, Served, engine_pids, show, wait_for_another_start

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

SETTINGS = {**QUICK, "qwen_tensor_parallel": 2}
RANKS = "^VLLM::Worker"


def test_two_ranks_share_one_engine(served: Served) -> None:
    assert len(engine_pids(served.host, RANKS)) == 2
    assert ask(served.host)[0] == 200
    said = served.host.ssh_run(f"systemd-analyze security --no-pager --threshold=20 {UNIT}").stdout
    assert " OK " in said.splitlines()[-1]


def test_a_killed_rank_takes_its_engine_with_it_and_both_come_back(served: Served) -> None:
    host = served.host
    before, ranks = show(host, "MainPID"), engine_pids(host, RANKS)
    host.ssh_run(f"kill -9 {ranks[1]}")
    wait_for_another_start(host, before)
    again = engine_pids(host, RANKS)
    assert (len(again), set(ranks) & set(again)) == (2, set())
    assert ask(host)[0] == 200


def test_a_stop_leaves_no_process_and_no_shared_memory(served: Served) -> None:
    host = served.host
    assert host.ssh_run("find /dev/shm -user qwen").stdout
    host.ssh_run("systemctl stop qwen")
    assert host.ssh_run("pgrep -u qwen", check=False).stdout == ""
    assert host.ssh_run("find /dev/shm -user qwen").stdout == ""
    host.ssh_run("systemctl start qwen", timeout=600)
    assert ask(host)[0] == 200
