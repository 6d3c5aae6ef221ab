"""The distribution's HAProxy with the rendered configuration, in front of stand-ins for engines."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwenlab.gateway.files import CONFIG, PEM, gateway_files
from qwenlab.gateway.lab_ca import LabCa, today
from qwenlab.planner.plan import Checkpoint, EnginePlan, HostPlan, Predicted, Workload
from qwenlab.settings import load
from tests.gateway.stand_in import PATIENCE_S, StandIn
from tests.ports import free_port

RATES = {"fast": 100.0, "slow": 50.0}
CHAT = "/v1/chat/completions"


@dataclass
class Running:
    """HAProxy with its engines."""

    port: int
    process: subprocess.Popen[bytes]
    engines: dict[str, StandIn]
    stacks: dict[str, ExitStack]
    notified: socket.socket | None = None
    context: ssl.SSLContext | None = None

    def start(self, name: str) -> None:
        """Let an engine listen where it did before."""
        self.stacks[name].enter_context(self.engines[name].running())

    def stop(self, name: str) -> None:
        """End an engine."""
        self.stacks[name].close()

    def connection(self) -> http.client.HTTPConnection:
        """A connection of its own."""
        if self.context is not None:
            return http.client.HTTPSConnection("localhost", self.port, timeout=PATIENCE_S, context=self.context)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON."""
        connection = self.connection()
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text.startswith(b"{") else text.decode()
        finally:
            connection.close()

    def hold(self) -> http.client.HTTPConnection:
        """A request whose answer is held."""
        connection = self.connection()
        connection.request("POST", CHAT, json.dumps({"hold": True}))
        return connection

    def reload(self) -> None:
        """As `systemctl reload` does; returns when the new process serves."""
        self.process.send_signal(signal.SIGUSR2)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Until HAProxy tells systemd that it is ready; a signal before that would be lost."""
        assert self.notified is not None
        while b"READY=1" not in self.notified.recv(4096):
            continue


@contextmanager
def gateway(folder: Path, *names: str, tls: bool = False, **more: Any) -> Iterator[Running]:
    """HAProxy in front of these engines."""
    with ExitStack() as stack:
        stacks = {name: stack.enter_context(ExitStack()) for name in names}
        engines = {name: stacks[name].enter_context(StandIn(name).running()) for name in names}
        port = free_port()
        given = {"bind": "127.0.0.1", "gateway": True, "gateway_port": port, **more}
        given |= {"gateway_lab_ca": str(folder)} if tls else {}
        settings = load({f"qwen_{key}": value for key, value in given.items()})
        plan = HostPlan(
            status="planned",
            workload=Workload.CHAT,
            vllm="0.33.0",
            engines=tuple(engine_plan(name, one.port) for name, one in engines.items()),
        )
        text = gateway_files(plan, settings)[CONFIG].content
        text = text.replace("/run/qwen-gateway", str(folder)).replace(PEM, str(folder / "tls.pem"))
        # the product's three seconds between health checks are the tests' tenth of one
        text = text.replace("inter 3s fastinter 1s", "inter 100ms fastinter 50ms")
        (folder / "haproxy.cfg").write_text(text)
        context = None
        if tls:
            authority = LabCa(folder)
            authority.issue("host1", ("localhost",), today())
            (folder / "tls.pem").write_text(authority.known("host1", ("localhost",), today()) or "")
            context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        notified = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        notified.bind(str(folder / "notify"))
        notified.settimeout(PATIENCE_S)
        environment = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify")}
        process = subprocess.Popen(["haproxy", "-Ws", "-f", str(folder / "haproxy.cfg")], env=environment)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        running = Running(port, process, engines, stacks, notified, context)
        running.wait_ready()
        yield running


def engine_plan(name: str, port: int) -> EnginePlan:
    """An engine as far as the gateway looks at it."""
    return EnginePlan(
        name=name,
        port=port,
        gpus=(),
        checkpoint=Checkpoint(repo="lab/tiny", revision="a" * 40, format="bf16"),
        kv_cache_dtype="auto",
        attention_backend=None,
        max_model_len=2048,
        max_num_seqs=4,
        args={},
        env={},
        predicted=Predicted(decode_tok_s=RATES[name]) if name in RATES else None,
    )
