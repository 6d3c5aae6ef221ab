"""Running deploy.py against lab hosts, as a person does: the real command, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.host import Host
from tests.lab.servers.hub import Hub
from tests.lab.servers.index import PackageIndex
from tests.lab.tiny_checkpoint import REPOSITORY, write

ROOT = Path(__file__).resolve().parents[2]
API_KEY = "lab-key-9d7c1f"
TOO_LONG = 1_000_000  # tokens: a setting takes it, the tiny checkpoint's engine ends at once over it


@dataclass(frozen=True)
class Run:
    """What one call of pyinfra said.

    Attributes:
        code: exit code.
        text: all that a person would have seen, without colours.
        changed: names of the operations that changed a host, with `-y --json`; empty when every host failed.
        unchanged: names of those that found nothing to do.
        planned: names of those that would change a host, in a dry run.
    """

    code: int
    text: str
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    planned: tuple[str, ...]


@dataclass(frozen=True)
class Sources:
    """The servers that a deploy of the cpu engine fetches from."""

    hub: Hub
    index: PackageIndex
    commit: str

    def settings(self, **more: Any) -> dict[str, Any]:
        """Settings of a host that serves the tiny checkpoint."""
        return {
            "qwen_engine": "cpu",
            "qwen_cpu_checkpoint": REPOSITORY,
            "qwen_cpu_revision": self.commit,
            "qwen_hub_endpoint": self.hub.endpoint,
            "qwen_index_url": self.index.url,
            "qwen_find_links": [self.index.find_links_url],
            "qwen_min_ram_gib": 1,
            "qwen_api_key": API_KEY,
            **more,
        }


@contextmanager
def sources(address: str, directory: Path) -> Iterator[Sources]:
    """Hub and index at `address`; the checkpoint is made below `directory`."""
    with Hub(address).running() as hub, PackageIndex(address).running() as index:
        yield Sources(hub, index, hub.add(REPOSITORY, write(directory / "tiny")))


def inventory(directory: Path, hosts: Mapping[str, Mapping[str, Any]], name: str = "lab") -> Path:
    """An inventory file as a person writes it, in a folder without group_data of its own."""
    path = directory / f"{name}.py"
    lines = [f"    ({host!r}, {dict(data)!r})," for host, data in hosts.items()]
    path.write_text("\n".join(["lab = [", *lines, "]", ""]))
    return path


def deploy(
    inventory_file: Path, *, dry: bool = False, cwd: Path = ROOT, timeout: float = 900, limit: str | None = None
) -> Run:
    """`pyinfra INVENTORY deploy.py -y --json` to its end; `--dry` in place of `-y`, and `--limit` where asked."""
    with started(inventory_file, dry=dry, cwd=cwd, limit=limit) as process:
        output, errors = process.communicate(timeout=timeout)
    said: dict[str, Any] = json.loads(output) if output.strip() else {}
    operations: list[dict[str, Any]] = (said.get("results") or {}).get("operations", [])
    return Run(
        code=process.returncode,
        text=errors,
        changed=tuple(str(one["name"]) for one in operations if one["success"]),
        unchanged=tuple(str(one["name"]) for one in operations if one["no_change"]),
        planned=tuple(str(one["name"]) for one in said.get("plan") or [] if one["hosts_with_change"]),
    )


@contextmanager
def started(
    inventory_file: Path, *, dry: bool = False, cwd: Path = ROOT, limit: str | None = None
) -> Iterator[subprocess.Popen[str]]:
    """The same, running; killed at the end of the block if it still does."""
    pyinfra = Path(sys.executable).with_name("pyinfra")
    how = "--dry" if dry else "-y"
    command = [str(pyinfra), str(inventory_file), str(ROOT / "deploy.py"), how, "--json"]
    command += ["--limit", limit] if limit is not None else []
    environment = {**os.environ, "NO_COLOR": "1", "PYINFRA_PROGRESS": "off"}
    with subprocess.Popen(
        command, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def play_command(inventory_file: Path, name: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """`pyinfra INVENTORY plays/NAME -y ARGUMENTS`, and the environment to run it in."""
    pyinfra = Path(sys.executable).with_name("pyinfra")
    command = [str(pyinfra), str(inventory_file), str(ROOT / "plays" / name), "-y", *arguments]
    return command, {**os.environ, "NO_COLOR": "1", "PYINFRA_PROGRESS": "off", "PWD": str(ROOT)}


def play(inventory_file: Path, name: str, *arguments: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    """The same, run to its end."""
    command, environment = play_command(inventory_file, name, *arguments)
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


def ask(host: Host, *, key: str | None = API_KEY, port: int = 8000) -> tuple[int, dict[str, Any]]:
    """Status and JSON of one chat completion, asked from outside the host."""
    body = {"model": "qwen", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    url = f"http://{host.address}:{port}/v1/chat/completions"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, {}
