"""What the gateway's operations would run on a host in a given state."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from typing import Any

import pytest

from qwenlab.facts.gateway import Gateway, Holder, PortHolders
from qwenlab.facts.own_service import OwnService
from qwenlab.gateway.files import CONFIG, FOLDER, PEM, UNIT, UNIT_FILE, gateway_files
from qwenlab.operations import gateway
from tests.gateway.test_files import TLS, plan, settings
from tests.operations.fake import commands

RUNS = ["gateway=yes active enabled no", "started=u u", "loaded=f f"]
ABSENT = ["gateway=no inactive unknown unknown", "started=none e", "loaded=none e"]
GATEWAY, STATES = "/run/qwen-gateway/$1", "sha256sum <"
PASSWD = ["qwen-gateway|999|999||/nonexistent|/bin/sh|0|"]


def lines(operation: Any, answers: dict[str, Any], **arguments: Any) -> list[str]:
    """Commands without their stdin."""
    return [line for line, _ in commands(operation, answers, **arguments)]


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (RUNS, OwnService(True, True, True, restart=False, reload=False)),
        (["gateway=yes active enabled no", "started=u u", "loaded=f g"], OwnService(True, True, True, False, True)),
        (["gateway=yes active enabled no", "started=u v", "loaded=f f"], OwnService(True, True, True, True, False)),
        (["gateway=yes active enabled yes", "started=u u", "loaded=f f"], OwnService(True, True, True, True, False)),
        (["gateway=yes failed enabled no", "started=none u", "loaded=none f"], OwnService(True, False, True)),
        (ABSENT, OwnService()),
    ],
)
def test_what_a_host_says_of_its_gateway(said: list[str], state: OwnService) -> None:
    assert Gateway().process(["Welcome!", *said]) == state


@pytest.mark.parametrize(
    ("said", "runs"),
    [
        (RUNS, []),
        (["gateway=yes active enabled no", "started=u u", "loaded=f g"], ["systemctl reload qwen-gateway.service"]),
        (["gateway=yes active enabled no", "started=u v", "loaded=f f"], ["systemctl restart qwen-gateway.service"]),
        (
            ["gateway=yes inactive disabled no", "started=none u", "loaded=none f"],
            ["systemctl enable --quiet qwen-gateway.service", "systemctl restart qwen-gateway.service"],
        ),
    ],
    ids=["as wanted", "other configuration", "other unit", "not there"],
)
def test_a_change_reloads_and_only_another_unit_restarts(said: list[str], runs: list[str]) -> None:
    found = lines(gateway.activate, {GATEWAY: said}, settings=settings())
    assert len(found) == len(runs)
    assert all(run in line for run, line in zip(runs, found, strict=True))


def there(*paths: tuple[str, str, str, str, str]) -> list[str]:
    """Answer to the question for files: mode, user, group, content, path."""
    return [
        f"path=file {mode} {user} {group} {sha256(content.encode()).hexdigest()} {path}"
        for mode, user, group, content, path in paths
    ]


def test_the_configuration_is_checked_before_it_gets_its_name() -> None:
    chosen = settings()
    (folder, config, unit, reload) = commands(gateway.configure, {}, settings=chosen, pem=None)
    assert folder[0] == f"install -d -o root -g qwen-gateway -m 750 {FOLDER}"
    assert config[1] == gateway_files(plan(chosen), chosen)[CONFIG].content
    check, rename = config[0].index(f"haproxy -c -q -f {CONFIG}.new"), config[0].index(f"mv -f {CONFIG}.new {CONFIG}")
    assert check < rename
    assert unit[0].endswith(f"mv -f {UNIT_FILE}.new {UNIT_FILE}")
    assert reload[0] == "systemctl daemon-reload"


def test_a_key_goes_to_the_host_on_stdin_for_the_gateway_alone() -> None:
    found = commands(gateway.configure, {}, settings=settings(**TLS), pem="SECRET\n")
    assert [line for line, _ in found if "SECRET" in line] == []
    ((line, _),) = [(line, stdin) for line, stdin in found if stdin == "SECRET\n"]
    assert "umask 077" in line
    assert f"chown qwen-gateway:qwen-gateway {PEM}.new && chmod 600 {PEM}.new" in line


def test_what_lies_there_is_left() -> None:
    chosen = settings()
    files = gateway_files(plan(chosen), chosen)
    answer = [
        f"path=directory 750 root qwen-gateway - {FOLDER}",
        *there(*(("644", "root", "root", file.content, path) for path, file in files.items())),
    ]
    assert lines(gateway.configure, {STATES: answer}, settings=chosen, pem=None) == []


def test_turned_off_it_goes_and_leaves_nothing() -> None:
    off = settings(gateway=False)
    assert lines(gateway.configure, {GATEWAY: RUNS}, settings=off, pem=None) == [
        f"systemctl disable --quiet --now {UNIT} && rm -f {UNIT_FILE} {CONFIG} && systemctl daemon-reload"
    ]
    (removal,) = lines(gateway.activate, {STATES: f"path=directory 750 root x - {FOLDER}"}, settings=off)
    assert removal.startswith(f"rm -rf {FOLDER} && ")
    assert "userdel qwen-gateway" in removal


def test_a_host_that_never_had_one_is_not_touched() -> None:
    off = settings(gateway=False)
    for operation, more in (
        (gateway.check, {}),
        (gateway.install, {}),
        (gateway.configure, {"pem": None}),
        (gateway.activate, {}),
    ):
        assert lines(operation, {GATEWAY: ABSENT}, settings=off, **more) == []


def test_the_packages_own_instance_is_not_started() -> None:
    found = lines(gateway.install, {"dpkg -l": ["ii  gcc  4:12 amd64 x"]}, settings=settings())
    order = [
        next(place for place, line in enumerate(found) if part in line)
        for part in ("systemctl mask --quiet haproxy", "install --yes", "systemctl disable --quiet haproxy", "useradd")
    ]
    assert order == sorted(order)


def test_a_haproxy_of_the_hosts_own_stays_as_it_is() -> None:
    found = lines(gateway.install, {"dpkg -l": ["ii  haproxy  2.6 amd64 x"]}, settings=settings())
    assert ["systemctl" in line or "apt-get" in line for line in found] == [False]


@pytest.mark.parametrize(
    ("port", "holders", "words"),
    [
        (8080, [], None),
        (8080, ["holder=7 qwen-gateway.service haproxy"], None),
        (8080, ["holder=7 qwen-engine@old.service python"], None),
        (8080, ["holder=7 nginx.service nginx"], "port 8080 is taken by nginx (process 7, nginx.service)"),
        (8080, ["holder=7 none VLLM::Api Server"], "port 8080 is taken by VLLM::Api Server (process 7)"),
        (8001, [], "port 8001 is that of engine cpu2: choose another qwen_gateway_port"),
    ],
)
def test_a_port_that_cannot_be_had_is_refused(port: int, holders: list[str], words: str | None) -> None:
    found = gateway.port_problems(plan(settings()), port, PortHolders().process(holders))
    assert [words in text for text in found if words] == ([True] if words else [])
    assert bool(found) == (words is not None)


def test_the_holders_are_told_by_process_and_unit() -> None:
    said = PortHolders().process(["motd", "holder=12 nginx.service nginx", "holder=13 none my server"])
    assert said == [Holder(12, "nginx.service", "nginx"), Holder(13, "none", "my server")]


def test_a_host_without_a_gateway_is_read() -> None:
    script = Gateway().command().replace("/etc/systemd/system", "/nonexistent")
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert Gateway().process(said.splitlines()).there is False
