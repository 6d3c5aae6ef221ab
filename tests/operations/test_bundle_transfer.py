"""A bundle on its way to a host: whole, resumed, sent again where it was damaged; a real shell stands for the host."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from qwenlab.bundle.manifest import MANIFEST, Manifest, describe
from qwenlab.bundle.source import Bundle
from qwenlab.operations import bundle_transfer as transfer

FILES = {
    "uv/uv.whl": b"uv",
    "wheels/a.whl": bytes(range(256)) * 300,
    "wheels/empty.whl": b"",
    "models/o/n/config.json": b"{}",
}


@dataclass
class Machine:
    """What pyinfra's host does, on this machine's shell. `broken` is asked before each upload."""

    name: str = "rack"
    print_prefix: str = "[rack] "
    connected: bool = True
    uploads: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    connector_data: dict[str, Any] = field(default_factory=dict)
    broken: Callable[[str, bytes], bytes] = lambda path, content: content

    def put_file(self, source: BytesIO, path: str, **arguments: Any) -> bool:
        self.uploads.append(path)
        Path(path).write_bytes(self.broken(path, source.read()))
        return True

    def run_shell_command(self, command: StringCommand, print_output: bool = False, **arguments: Any) -> Any:
        text, stdin = command.get_raw_value(), arguments.get("_stdin")
        done = subprocess.run(["sh", "-c", text], input=stdin, capture_output=True, text=True, check=False)
        good = done.returncode in (arguments.get("_success_exit_codes") or [0])
        return good, SimpleNamespace(stdout_lines=done.stdout.splitlines(), stderr=done.stderr)

    def connect(self, **arguments: Any) -> None:
        self.connected = True

    def disconnect(self) -> None:
        self.connected = False

    def log(self, text: str, **arguments: Any) -> None:
        self.said.append(text)

    log_styled = log


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    root = tmp_path / "bundle"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    manifest = Manifest(
        qwenlab="0.1.0",
        engine="cpu",
        vllm="0.32.0",
        python="3.11",
        platform="manylinux_2_35_x86_64",
        lock_sha256="0" * 64,
        files=describe(root),
    )
    (root / MANIFEST).write_text(manifest.model_dump_json())
    return Bundle(manifest, str(tmp_path / "host" / "bundle"), root)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(transfer, "CHUNK", 20_000)
    monkeypatch.setattr(transfer, "_known", {})
    return iter(())


def carry(machine: Machine, bundle: Bundle) -> bool:
    wanted, pauses = bundle.manifest.files, list[float]()
    return transfer.carry(cast(State, None), cast(Host, machine), bundle, wanted, {}, pauses.append)


def arrived(bundle: Bundle) -> dict[str, bytes]:
    root = Path(bundle.directory)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_every_file_arrives_whole_under_its_name(bundle: Bundle) -> None:
    machine = Machine()
    assert carry(machine, bundle)
    found = arrived(bundle)
    assert found.pop(MANIFEST)
    assert found == FILES
    assert "4 files of the bundle are there and whole" in machine.said


def test_what_lies_there_is_not_sent_again_and_a_beginning_is_gone_on_from(bundle: Bundle) -> None:
    place = Path(bundle.directory)
    for name, content in {"uv/uv.whl": b"uv", "wheels/a.whl.part": FILES["wheels/a.whl"][:60_000]}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    machine = Machine()
    assert carry(machine, bundle)
    assert f"{place}/uv/uv.whl.part" not in machine.uploads
    assert machine.uploads.count(f"{place}/.chunk") == 1
    assert arrived(bundle)["wheels/a.whl"] == FILES["wheels/a.whl"]


def test_a_beginning_that_is_not_the_files_own_is_sent_again(bundle: Bundle) -> None:
    part = Path(bundle.directory, "wheels/a.whl.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(50_000))
    assert carry(Machine(), bundle)
    assert arrived(bundle)["wheels/a.whl"] == FILES["wheels/a.whl"]


def test_a_lost_connection_is_made_anew_and_the_transfer_goes_on(bundle: Bundle) -> None:
    lost = iter([False, False, False, True])

    def broken(path: str, content: bytes) -> bytes:
        if path.endswith(".chunk") and next(lost, False):
            raise OSError("socket is closed")
        return content

    machine = Machine(broken=broken)
    assert carry(machine, bundle)
    assert arrived(bundle)["wheels/a.whl"] == FILES["wheels/a.whl"]
    assert machine.uploads.count(f"{bundle.directory}/wheels/a.whl.part") == 1


def test_a_host_that_stays_away_fails_with_what_to_do_and_keeps_what_came(bundle: Bundle) -> None:
    def broken(path: str, content: bytes) -> bytes:
        if path.endswith(".chunk"):
            raise OSError("socket is closed")
        return content

    machine = Machine(broken=broken)
    assert not carry(machine, bundle)
    assert "deploy again to go on from here" in machine.said[-1]
    assert Path(bundle.directory, "wheels/a.whl.part").stat().st_size == 20_000


def test_what_is_damaged_on_every_way_never_gets_its_name(bundle: Bundle) -> None:
    machine = Machine(broken=lambda path, content: content.replace(b"uv", b"vu"))
    assert not carry(machine, bundle)
    assert "uv/uv.whl" not in arrived(bundle)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_bytes(b"vu"), "not what the manifest says"),
    ],
)
def test_damage_on_the_control_machine_is_seen_before_anything_is_sent(
    bundle: Bundle, damage: Callable[[Path], None], words: str
) -> None:
    assert bundle.local is not None
    assert transfer.local_damage(bundle.local, bundle.manifest.files) == []
    damage(bundle.local / "uv/uv.whl")
    transfer._known.clear()
    (text,) = transfer.local_damage(bundle.local, bundle.manifest.files)
    assert text.startswith("uv/uv.whl: ")
    assert words in text


def test_a_bundle_on_the_host_is_read_and_left_as_it_is(bundle: Bundle) -> None:
    root = bundle.local
    assert root is not None
    places = ["uv/", "wheels/"]
    machine = Machine()
    assert transfer.check(cast(State, None), cast(Host, machine), str(root), places, {})
    (root / "wheels/a.whl").write_bytes(b"x" * len(FILES["wheels/a.whl"]))
    (root / "models/o/n/config.json").write_bytes(b"[]")
    assert not transfer.check(cast(State, None), cast(Host, machine), str(root), places, {})
    assert machine.said == [f"refused: {root}/wheels/a.whl is damaged: copy the bundle anew"]
    assert (root / "wheels/a.whl").exists()
    (root / MANIFEST).unlink()
    assert not transfer.check(cast(State, None), cast(Host, machine), str(root), places, {})
