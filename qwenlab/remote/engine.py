#!/usr/bin/env python3
"""engine.py CONFIG: run one vLLM server in this process and tell systemd "ready" once a completion was answered.

Started by qwen-engine@.service with the release's interpreter. The API key comes as a systemd credential and goes to
vLLM in its environment, so that it stands on no command line. A child process asks the server until it answers. Nothing
is imported but liveness.py: by these two files `fingerprint` knows whether an engine runs with what lies there.
"""

from __future__ import annotations

import array
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NoReturn

POLL_S = 0.5
ANSWER_TIMEOUT_S = 600.0
LIVENESS_TIMEOUT_S = 30.0
RUN = Path("/run/qwen")
CONFIG = 78  # EX_CONFIG of sysexits.h: restarting cannot mend it
SHORTEST_KEY = 8


def main() -> None:
    """Obey the gate, fork the probe, then become vLLM."""
    config = Path(sys.argv[1])
    obey_gate(RUN / f"{os.environ.get('QWEN_ENGINE', '')}.gate")
    key = read_credential("api_key")
    if key is not None:
        if len(key) < SHORTEST_KEY:
            refuse("the API key is missing or too short, and without one vLLM answers everybody: deploy again")
        os.environ["VLLM_API_KEY"] = key
    server = os.getpid()
    arguments = load(config)
    if "port" in arguments and os.environ.get("NOTIFY_SOCKET"):
        start_probe(server, arguments, key)
    os.environ.pop("NOTIFY_SOCKET", None)
    sys.argv = ["vllm", "serve", "--config", str(config)]
    importlib.import_module("vllm.entrypoints.cli.main").main()


def obey_gate(verdict: Path) -> None:
    """Leave with the gate's code and words when it said no; a start by hand without systemd has no verdict."""
    if not verdict.exists():
        return
    said: dict[str, Any] = json.loads(verdict.read_text())
    if said["code"]:
        refuse(*said["reasons"], code=said["code"])


def refuse(*reasons: str, code: int = CONFIG) -> NoReturn:
    """Say why, in the journal and in the unit's status, and leave."""
    for reason in reasons:
        print(f"refused: {reason}", flush=True)
    if os.environ.get("NOTIFY_SOCKET"):
        notify(f"STATUS=refused: {reasons[0]}")
    sys.exit(code)


def load(config: Path) -> dict[str, Any]:
    """The YAML that `vllm serve --config` reads; refused when it is none."""
    yaml = importlib.import_module("yaml")
    try:
        loaded = yaml.safe_load(config.read_text())
    except (OSError, yaml.YAMLError) as error:
        refuse(f"{config} cannot be read ({' '.join(str(error).split())}): mend it, or deploy again")
    if not isinstance(loaded, dict) or "model" not in loaded:
        refuse(f"{config} names no model: mend it, or deploy again")
    return loaded


def read_credential(name: str) -> str | None:
    """A credential that systemd hands to the unit (LoadCredential=), or None."""
    directory = os.environ.get("CREDENTIALS_DIRECTORY")
    path = Path(directory, name) if directory else None
    return path.read_text().strip() if path is not None and path.exists() else None


def start_probe(server: int, arguments: dict[str, Any], key: str | None) -> None:
    """Fork twice, so that vLLM does not inherit a child that it never waits for."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    if os.fork():
        os._exit(0)
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        probe(server, arguments, key)
    except Exception as error:
        # nothing else would tell why the start, or the watchdog, then runs into its limit
        traceback.print_exc()
        notify(f"STATUS=the probe failed ({error!r}): this engine will be restarted")
    finally:
        os._exit(0)


def probe(server: int, arguments: dict[str, Any], key: str | None) -> None:
    """Wait for /health, ask for one token, report ready; give up only when the server is gone."""
    host = str(arguments.get("host") or "127.0.0.1")
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    base = f"http://{name}:{arguments['port']}"
    models = arguments.get("served-model-name") or [arguments["model"]]
    question = {"model": models[0], "prompt": "The capital of France is", "max_tokens": 1, "temperature": 0}
    notify("STATUS=loading the model")
    while alive(server):
        if request(f"{base}/health", None, key, 5.0) is not None:
            notify("STATUS=loaded; waiting for the first completion")
            answer = request(f"{base}/v1/completions", question, key, ANSWER_TIMEOUT_S)
            if answer and answer.get("choices"):
                notify(f"READY=1\nSTATUS=answering on {base}")
                barrier()
                watch(server, base, models[0], key)
                return
        time.sleep(POLL_S)


def watch(server: int, base: str, model: str, key: str | None) -> None:
    """From now on: does it still generate? (liveness.py)"""
    interval = float(os.environ.get("QWEN_LIVENESS_S", "0"))
    if interval <= 0:
        return
    importlib.import_module("liveness").Watch(
        model=model,
        ask=lambda question: request(f"{base}/v1/completions", question, key, LIVENESS_TIMEOUT_S),
        metrics=lambda: fetch(f"{base}/metrics", key),
        notify=notify,
        alive=lambda: alive(server),
    ).run(interval)


def fetch(url: str, key: str | None) -> str:
    """A page's text, empty when it did not come."""
    headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=5) as response:
            return str(response.read().decode(errors="replace"))
    except OSError:
        return ""


def alive(process: int) -> bool:
    """Whether the process still runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def request(url: str, body: dict[str, Any] | None, key: str | None, timeout: float) -> dict[str, Any] | None:
    """The JSON answer of a successful request ({} when there is no body), None when it failed."""
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    data = json.dumps(body).encode() if body is not None else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, data, headers), timeout=timeout) as response:
            text = response.read()
            answer: dict[str, Any] = json.loads(text) if text.strip() else {}
            return answer
    except urllib.error.HTTPError as error:
        print(f"engine.py: {url} answered HTTP {error.code}: {error.read(300).decode(errors='replace')}", flush=True)
        return None
    except (OSError, ValueError):
        return None


def notify(message: str, descriptors: tuple[int, ...] = ()) -> None:
    """sd_notify(3): one datagram to the socket that systemd named."""
    address = os.environ["NOTIFY_SOCKET"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect("\0" + address[1:] if address.startswith("@") else address)
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        channel.sendmsg([message.encode()], passed)


def barrier() -> None:
    """Wait until systemd has read what was sent: it must find the sender alive to know its unit (sd_notify(3))."""
    reader, writer = os.pipe()
    notify("BARRIER=1", (writer,))
    os.close(writer)
    waiting = select.poll()
    waiting.register(reader, select.POLLHUP)
    waiting.poll(5000)


if __name__ == "__main__":
    main()
