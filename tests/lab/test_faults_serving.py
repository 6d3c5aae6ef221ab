"""Faults on a host that serves: each ends serving again, without a hand and with nothing lost."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import lab
from tests.lab.deploying import API_KEY, ask
from tests.lab.serving import (
    ANSWERS,
    QUICK,
    UNIT,
    Served,
    files,
    forget_restarts,
    planned_card,
    request,
    served_host,
    show,
    wait,
    wait_for_another_start,
)
from tests.sim.faults import Fault as CardFault
from tests.sim.inventory import Process
from tests.sim.lab_host import SimulatedGpus

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

MEMORY_MIB = 5000
PID = f"$(systemctl show -p MainPID --value {UNIT})"
CORE = "$(pgrep -f ^VLLM::EngineCore)"
# takes memory until the kernel ends the engine's core, and then lets go of it
HOG = 'import os,sys\nheld=[]\nwhile os.path.exists("/proc/"+sys.argv[1]): held.append(b"1" * (16 << 20))\n'
SQUATTER = """\
import socket
import time
while True:
    try:
        held = socket.create_server(("0.0.0.0", 8000))
        break
    except OSError:
        time.sleep(0.05)
time.sleep(3600)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host that serves, with a limit to its memory."""
    spec = lab.HostSpec(release="bookworm", memory_mib=MEMORY_MIB)
    with served_host(tmp_path_factory.mktemp("faults"), spec, **QUICK) as host:
        host.host.put(HOG.encode(), "/root/hog.py")
        host.host.put(SQUATTER.encode(), "/root/squatter.py")
        yield host


@pytest.fixture
def serving(served: Served) -> Iterator[lab.Host]:
    """The host, serving before the fault; after it, it must serve with the same files as before."""
    host = served.host
    forget_restarts(host)
    host.ssh_run(f"systemctl start qwen {UNIT}", timeout=600)
    before = files(host)
    yield host
    host.ssh_run(ANSWERS)
    assert ask(host)[0] == 200
    assert files(host) == before


@dataclass(frozen=True)
class Fault:
    """A way to end an engine, and words that its unit's journal must then have.

    Attributes:
        inflict: shell on the host.
        let_go: shell that ends what keeps the engine from starting; nothing else is done for it.
        tidy: shell for afterwards.
    """

    inflict: str
    says: str
    let_go: str = "true"
    tidy: str = "true"


FAULTS = {
    "main-process-killed": Fault(f"kill -9 {PID}", "code=killed, status=9/KILL"),
    "core-killed": Fault(f"kill -9 {CORE}", "Scheduled restart job"),
    "ended-by-hand": Fault(f"kill -TERM {PID}", "Scheduled restart job"),
    "core-stalls": Fault(f"kill -STOP {CORE}", "no token was generated since the last look"),
    "api-process-stalls": Fault(f"kill -STOP {PID}", "Watchdog timeout"),
    "probe-killed": Fault(f"kill -9 $(pgrep -f qwen/engine.py | grep -vx {PID})", "Watchdog timeout"),
    "memory-of-the-host-runs-out": Fault(
        f"systemd-run --quiet --wait --collect -p OOMScoreAdjust=-900 python3 /root/hog.py {CORE}",
        "Scheduled restart job",
    ),
    "killed-and-its-port-taken": Fault(
        f"systemd-run --quiet --unit=squatter python3 /root/squatter.py; kill -9 {PID}; "
        f"timeout 120 sh -c 'until systemctl status {UNIT} | grep -q \"port 8000 is taken\"; do sleep 0.5; done'",
        "waiting: port 8000 is taken (held by process",
        let_go="systemctl stop squatter",
    ),
    "killed-while-the-disk-of-the-journal-is-full": Fault(
        "mkdir -p /var/log/journal; mount -t tmpfs -o size=1m tmpfs /var/log/journal; "
        f"head -c 2M /dev/zero > /var/log/journal/fill; systemctl restart systemd-journald; kill -9 {PID}",
        "",
        tidy="umount -l /var/log/journal; systemctl restart systemd-journald",
    ),
    "killed-and-its-run-directory-lost": Fault(f"rm -rf /run/qwen; kill -9 {PID}", "Scheduled restart job"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_engine_comes_back_by_itself(serving: lab.Host, name: str) -> None:
    fault, before = FAULTS[name], show(serving, "MainPID")
    since = serving.ssh_run("date +%s").stdout.strip()
    try:
        serving.ssh_run(fault.inflict, check=False, timeout=300)
        serving.ssh_run(fault.let_go)
        wait_for_another_start(serving, before)
    finally:
        serving.ssh_run(fault.tidy)
    assert fault.says in serving.ssh_run(f"journalctl --no-pager -u {UNIT} --since @{since}").stdout


@pytest.mark.parametrize("signal", ["KILL", "TERM"])
def test_the_umbrella_comes_back_and_its_engines_do_not_even_notice(serving: lab.Host, signal: str) -> None:
    before, umbrella = show(serving, "MainPID"), show(serving, "MainPID", "qwen.service")
    serving.ssh_run(f"kill -{signal} {umbrella}")
    wait_for_another_start(serving, umbrella, "qwen.service")
    assert show(serving, "MainPID") == before


def test_it_comes_back_without_a_network(serving: lab.Host) -> None:
    before = show(serving, "MainPID")
    serving.cut_network()
    try:
        serving.ssh_run(f"kill -9 {before}")
        wait_for_another_start(serving, before)
    finally:
        serving.mend_network()


UNHURT = {
    "journald-killed": "systemctl kill -s KILL systemd-journald; systemctl start systemd-journald",
    "systemd-executes-itself-anew": "systemctl daemon-reexec",
    "a-neighbour-s-unit-fails": "systemd-run --quiet --wait false",
    "home-is-full": "mount -t tmpfs -o size=64k tmpfs /var/lib/qwen; head -c 1M /dev/zero > /var/lib/qwen/fill",
}


@pytest.mark.parametrize("name", UNHURT)
def test_the_engine_does_not_even_notice(serving: lab.Host, name: str) -> None:
    """It keeps its process, and its watchdog goes on being fed."""
    before, fed = show(serving, "MainPID"), show(serving, "WatchdogTimestampMonotonic")
    try:
        serving.ssh_run(UNHURT[name], check=False)
        wait(serving, f"[ $(systemctl show -p WatchdogTimestampMonotonic --value {UNIT}) -gt {fed} ]", 60)
        assert ask(serving)[0] == 200
        assert show(serving, "MainPID") == before
    finally:
        serving.ssh_run("umount /var/lib/qwen", check=False)


def test_health_still_answers_while_the_core_stalls(serving: lab.Host) -> None:
    """Why liveness asks for tokens."""
    serving.ssh_run(f"kill -STOP {CORE}")
    try:
        assert request(serving, "GET", "/health", None)[0] == 200
    finally:
        serving.ssh_run(f"kill -CONT {CORE}")


@pytest.fixture
def cards(served: Served) -> Iterator[SimulatedGpus]:
    """Two simulated cards, one of which the engine is to have."""
    with planned_card(served.host) as simulated:
        yield simulated


def test_a_card_that_another_program_holds_is_waited_for(cards: SimulatedGpus, serving: lab.Host) -> None:
    before = show(serving, "MainPID")
    cards.set_faults(CardFault.processes(0, Process(pid=1, name="other", mib=9_000)))
    serving.ssh_run(f"kill -9 {before}")
    wait(serving, f"systemctl status --no-pager {UNIT} | grep -q 'the plan needs 20480: held by process 1'", 60)
    cards.set_faults(CardFault())
    wait_for_another_start(serving, before)


def test_an_engine_whose_card_is_gone_stays_down_with_words_and_starts_once_it_is_back(
    cards: SimulatedGpus, serving: lab.Host
) -> None:
    before = show(serving, "MainPID")
    cards.set_faults(CardFault.absent(0))
    serving.ssh_run(f"kill -9 {before}")
    wait(serving, f"systemctl is-failed --quiet {UNIT}", 60)
    assert show(serving, "ExecMainStatus") == "78"
    assert "is not there; if it was taken out, deploy again" in show(serving, "StatusText")
    cards.set_faults(CardFault())
    wait(serving, "systemctl is-failed --quiet qwen", 60)
    serving.ssh_run("systemctl start qwen", timeout=300)


STREAMS = 3


def test_a_stop_lets_answers_end_that_have_begun(serving: lab.Host) -> None:
    begun = threading.Semaphore(0)

    def stream() -> str:
        """The last line of an answer that is long enough to be stopped in the middle."""
        body = {"model": "qwen", "prompt": "Once", "max_tokens": 800, "ignore_eos": True, "stream": True}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {API_KEY}"}
        url = f"http://{serving.address}:8000/v1/completions"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=200) as answer:
            last = answer.readline()
            begun.release()
            for line in answer:
                last = line if line.strip() else last
        return str(last.decode().strip())

    with ThreadPoolExecutor(STREAMS) as pool:
        answers = [pool.submit(stream) for _ in range(STREAMS)]
        for _ in answers:
            assert begun.acquire(timeout=120)
        serving.ssh_run("systemctl stop --no-block qwen")
        wait(serving, f"systemctl show -p ActiveState --value {UNIT} | grep -qx deactivating", 60)
        assert not any(answer.done() for answer in answers)
        assert [answer.result() for answer in answers] == ["data: [DONE]"] * STREAMS
    wait(serving, f"systemctl show -p ActiveState --value {UNIT} | grep -qx inactive", 120)
    assert show(serving, "Result") == "success"
    serving.ssh_run("systemctl start qwen", timeout=600)


DAY_S = 86400
CLOCK = {
    # what the engine's processes, its gate and its probe read as the date
    "LD_PRELOAD": "/usr/local/lib/jumping_clock.so",
    "CLOCK_SHIFT": "/var/lib/qwen/clock",
}


def test_a_jump_of_the_clock_is_nothing_to_it(served: Served, tmp_path: Path) -> None:
    host = served.host
    host.put(compiled("jumping_clock.c", tmp_path), CLOCK["LD_PRELOAD"])
    run = served.redeploy(qwen_engine_env=CLOCK)
    assert run.code == 0, run.text
    before, started = files(host), show(host, "MainPID")
    for days in (400, -400):
        host.put(f"{days * DAY_S}\n".encode(), CLOCK["CLOCK_SHIFT"])
        fed = show(host, "WatchdogTimestampMonotonic")
        wait(host, f"[ $(systemctl show -p WatchdogTimestampMonotonic --value {UNIT}) -gt {fed} ]", 60)
        status, answer = ask(host)
        assert status == 200
        assert abs(answer["created"] - time.time() - days * DAY_S) < DAY_S
    assert show(host, "MainPID") == started
    forget_restarts(host)
    host.ssh_run(f"kill -9 {started}")
    wait_for_another_start(host, started)
    assert ask(host)[0] == 200
    assert files(host) == before


def compiled(source: str, directory: Path) -> bytes:
    """A library of this folder, built for this machine and so for its hosts."""
    library = directory / f"{source}.so"
    flags = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run(["gcc", *flags, "-o", str(library), str(Path(__file__).with_name(source))], check=True)
    return library.read_bytes()
