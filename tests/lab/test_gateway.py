"""The gateway on a host, deployed as a person does, with two real engines behind it."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from qwenlab.gateway.files import CONFIG, FOLDER, PEM, UNIT, UNIT_FILE, USER, gateway_files
from qwenlab.gateway.lab_ca import LabCa, today
from tests import lab
from tests.gateway.pairs import pair
from tests.gateway.test_files import plan, settings
from tests.lab.deploying import API_KEY, Run, Sources, ask, deploy, inventory, play, sources

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

PORT = 8443
KEYED = {"Authorization": f"Bearer {API_KEY}"}
CHAT = "/v1/completions"


@dataclass
class Served:
    """A host with two engines and a gateway; `more` are settings on top."""

    host: lab.Host
    sources: Sources
    directory: Path
    first: Run | None = None
    context: ssl.SSLContext = field(default_factory=ssl.create_default_context)

    def deploy(self, **more: Any) -> Run:
        """Deploy with these settings instead of, or beside, the usual."""
        return deploy(self.inventory(**more))

    def inventory(self, **more: Any) -> Path:
        """With these settings."""
        given = {"qwen_cpu_engines": 2, "qwen_gateway": True, "qwen_gateway_lab_ca": str(self.directory / "ca"), **more}
        wanted = {key: value for key, value in self.sources.settings(**given).items() if value is not None}
        return inventory(self.directory, {self.host.name: {**self.host.pyinfra_data("admin"), **wanted}})

    def connection(self) -> http.client.HTTPSConnection:
        """To the gateway, trusting the lab's authority alone."""
        return http.client.HTTPSConnection(self.host.address, PORT, timeout=120, context=self.context)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        """Status and body."""
        connection = self.connection()
        try:
            text = json.dumps(body) if body is not None else None
            connection.request(method, path, text, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def pid(self) -> str:
        """Of the gateway's master."""
        return self.host.ssh_run(f"systemctl show -p MainPID --value {UNIT}").stdout.strip()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Deployed."""
    directory = tmp_path_factory.mktemp("gateway")
    with lab.hosts(1, release="bookworm") as hosts, sources(hosts.gateway, directory) as origin:
        made = Served(hosts[0], origin, directory)
        made.first = made.deploy()
        assert made.first.code == 0, made.first.text
        made.context = ssl.create_default_context(cafile=str(directory / "ca/ca.crt"))
        yield made


def test_both_engines_answer_at_one_tls_endpoint_and_nowhere_else(served: Served) -> None:
    question = {"model": "qwen", "prompt": "Hello", "max_tokens": 4}
    for _ in range(4):
        status, body = served.ask("POST", CHAT, question, **KEYED)
        assert status == 200, body
        assert json.loads(body)["choices"]
    for port in (8000, 8001):
        assert "vllm:generation_tokens_total" in inside(served.host, port, "/metrics")
        with pytest.raises(OSError, match=r"refused|reset|timed out"):
            ask(served.host, port=port)


def inside(host: lab.Host, port: int, path: str) -> str:
    """What an engine answers on the host itself."""
    request = f"u.Request('http://127.0.0.1:{port}{path}', headers={{'Authorization': 'Bearer {API_KEY}'}})"
    return host.ssh_run(f'python3 -c "import urllib.request as u; print(u.urlopen({request}).read().decode())"').stdout


def test_of_all_routes_of_the_engine_only_the_api_passes(served: Served) -> None:
    page = inside(served.host, 8000, "/openapi.json")
    routes = [
        (method.upper(), path.replace("{", "").replace("}", ""))
        for path, methods in json.loads(page)["paths"].items()
        for method in methods
    ]
    assert len(routes) > 15
    for method, path in routes:
        wanted = 200 if path == "/health" else 401 if path.startswith("/v1/") else 404
        assert (path, served.ask(method, path, {})[0]) == (path, wanted)
    for path in ("/tokenize", "/metrics", "/docs", "/openapi.json"):
        assert (path, served.ask("GET", path, **KEYED)[0]) == (path, 404)


def test_the_key_is_its_users_alone_and_in_no_log(served: Served) -> None:
    host = served.host
    assert host.ssh_run(f"stat -c '%a %U' {PEM}").stdout.split() == ["600", USER]
    assert host.ssh_run(f"stat -c %U /proc/{served.pid()}").stdout.strip() == USER
    assert served.first is not None
    assert "PRIVATE KEY" not in served.first.text
    said = host.ssh_run(f"systemd-analyze security --no-pager --threshold=20 {UNIT}").stdout
    assert " OK " in said.splitlines()[-1]


def test_a_second_run_changes_nothing(served: Served) -> None:
    before = served.pid()
    again = served.deploy()
    assert (again.code, again.changed) == (0, ()), again.text
    assert served.pid() == before


def test_a_change_reloads_and_the_stream_goes_on(served: Served) -> None:
    before = served.pid()
    connection = served.connection()
    question = {"model": "qwen", "prompt": "Hello", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    connection.request("POST", CHAT, json.dumps(question), {"Content-Type": "application/json", **KEYED})
    answer = connection.getresponse()
    assert answer.readline().startswith(b"data: ")
    run = served.deploy(qwen_gateway_silence_s=1800)
    assert run.code == 0, run.text
    assert run.changed == ("Roll out | Serve as asked",)
    assert answer.read().rstrip().endswith(b"data: [DONE]")
    assert served.pid() == before
    assert "hard-stop-after 1800s" in served.host.get(CONFIG).decode()
    assert served.ask("GET", "/health")[0] == 200


LISTEN = "python3 -c 'import socket,time; s=socket.create_server((\"0.0.0.0\", 9443)); time.sleep(600)'"


def test_what_cannot_work_is_refused_before_anything_is_changed(served: Served) -> None:
    host, directory = served.host, served.directory
    now = today()
    good, other, old = pair("h", start=now), pair("h", start=now), pair("h")
    for name, text in {"good.crt": good[0], "good.key": good[1], "other.key": other[1]}.items():
        (directory / name).write_bytes(text)
    (directory / "old.crt").write_bytes(old[0])
    (directory / "old.key").write_bytes(old[1])
    host.ssh_run(f"touch /run/before; systemd-run --unit=squatter {LISTEN}")
    for more, words in [
        ({"qwen_gateway_port": 9443}, "the gateway's port 9443 is taken by python3 (process"),
        ({"qwen_gateway_port": 8001}, "8001 is that of qwen_gateway_port"),
        (_given(directory, "none.crt", "good.key"), "none.crt: No such file or directory"),
        (_given(directory, "good.crt", "other.key"), "other.key: the key does not belong to the certificate"),
        (_given(directory, "old.crt", "old.key"), "old.crt: the certificate expired on"),
    ]:
        run = served.deploy(**more)
        assert run.code == 1
        assert words in run.text
    host.ssh_run("systemctl stop squatter")
    assert host.ssh_run("find /etc /usr/local /opt /srv /var/lib/qwen* -newer /run/before -type f").stdout == ""
    assert served.ask("GET", "/health")[0] == 200


def _given(directory: Path, certificate: str, key: str) -> dict[str, Any]:
    return {
        "qwen_gateway_lab_ca": None,
        "qwen_gateway_certificate": str(directory / certificate),
        "qwen_gateway_key": str(directory / key),
    }


def test_status_tells_whether_it_runs_and_fails_when_it_does_not(served: Served) -> None:
    file = served.inventory(qwen_gateway_silence_s=1800)
    status = play(file, "status.py")
    assert (status.returncode, "gateway: active" in status.stderr) == (0, True), status.stderr
    served.host.ssh_run(f"systemctl stop {UNIT}")
    status = play(file, "status.py")
    assert (status.returncode, "gateway: inactive, though asked for" in status.stderr) == (1, True), status.stderr
    served.host.ssh_run(f"systemctl start {UNIT}")


def test_after_a_reboot_it_serves(served: Served) -> None:
    served.host.reboot()
    served.host.ssh_run("timeout 600 systemctl start qwen", timeout=620)
    assert served.ask("POST", CHAT, {"model": "qwen", "prompt": "Hello", "max_tokens": 1}, **KEYED)[0] == 200


def test_turned_off_it_is_gone_and_the_engines_answer_themselves(served: Served) -> None:
    run = served.deploy(qwen_gateway=False, qwen_gateway_lab_ca=None)
    assert run.code == 0, run.text
    left = served.host.ssh_run(f"ls -d {FOLDER} {UNIT_FILE}; id {USER}; systemctl is-active {UNIT}", check=False)
    assert left.stdout.split() == ["inactive"]
    assert [ask(served.host, port=port)[0] for port in (8000, 8001)] == [200, 200]
    assert served.deploy(qwen_gateway=False, qwen_gateway_lab_ca=None).changed == ()


@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_each_distributions_haproxy_starts_with_the_files(release: str, tmp_path: Path) -> None:
    chosen = settings(gateway_lab_ca="unused", gateway_port=443, scraped_from=["10.0.0.0/8"])
    authority = LabCa(tmp_path)
    authority.issue("h", ("h",), today())
    with lab.hosts(1, release=release, packages=("haproxy",)) as (host,):
        host.ssh_run(f"useradd --system --user-group {USER}; install -d -g {USER} -m 750 {FOLDER}")
        for path, file in gateway_files(plan(chosen), chosen).items():
            host.put(file.content.encode(), path)
        host.put((authority.known("h", ("h",), today()) or "").encode(), PEM)
        host.ssh_run(f"chown {USER} {PEM}; chmod 600 {PEM}; systemctl daemon-reload; systemctl enable --now {UNIT}")
        assert told_to_be_down(host, tmp_path)
        host.ssh_run(f"systemctl reload {UNIT}")
        assert told_to_be_down(host, tmp_path)
        assert host.ssh_run(f"systemctl is-active {UNIT}").stdout.strip() == "active"


def told_to_be_down(host: lab.Host, folder: Path) -> bool:
    """Whether /health says that there is no engine; HAProxy takes an engine for good until its first look."""
    return any(health(host, folder) == 503 for _ in range(5000))


def health(host: lab.Host, folder: Path) -> int:
    """Status of /health."""
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.check_hostname = False
    connection = http.client.HTTPSConnection(host.address, 443, timeout=60, context=context)
    connection.request("GET", "/health")
    return connection.getresponse().status
