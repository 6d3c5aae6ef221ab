"""`python -m qwenlab render`: what a deploy would put on a host, judged by systemd itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from qwenlab.cli import main
from qwenlab.host_inventory import HostInventory
from qwenlab.planner.plan import HostPlan
from qwenlab.remote import cards
from tests.exposure import exposure
from tests.planner.machines.table import inventories

CPU = ("engine=cpu", "cpu_checkpoint=lab/tiny", f"cpu_revision='{'0123456789' * 4}'")
CARDS = ("2x3090-nvlink", "1x4090")


def inventory(name: str) -> HostInventory:
    """A machine of the planner's table."""
    return inventories()[name]


def rendered(folder: Path, source: HostInventory, *settings: str) -> Path:
    """Where the files of a host lie after the command."""
    file = folder / "inventory.json"
    file.write_text(source.model_dump_json())
    arguments = [part for pair in settings for part in ("--set", pair)]
    assert main(["render", "--from", str(file), "--out", str(folder / "root"), *arguments]) == 0
    return folder / "root"


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of a cpu host and of hosts with cards, by name."""
    made = {"cpu": rendered(tmp_path_factory.mktemp("cpu"), HostInventory(), *CPU, "api_key=0123456789")}
    for name in CARDS:
        made[name] = rendered(tmp_path_factory.mktemp("cards"), inventory(name), "api_key=0123456789")
    return made


def units(root: Path) -> Path:
    """Where the units lie."""
    return root / "etc/systemd/system"


def instances(root: Path) -> list[str]:
    """Names of the engines' unit instances."""
    return [path.name.removesuffix(".gate.json") for path in (root / "etc/qwen/engines").glob("*.gate.json")]


def whole_unit(root: Path, name: str) -> str:
    """The engine's unit with its drop-ins, as systemd reads it."""
    drop_ins = (units(root) / f"qwen-engine@{name}.service.d").glob("*.conf")
    texts = [units(root) / "qwen-engine@.service", *drop_ins]
    return "\n".join(path.read_text() for path in texts)


@pytest.mark.parametrize("host", ["cpu", *CARDS])
def test_the_engine_unit_is_ok_in_systemds_eyes(roots: dict[str, Path], host: str, tmp_path: Path) -> None:
    for name in instances(roots[host]):
        unit = tmp_path / f"{name}.service"
        unit.write_text(whole_unit(roots[host], name))
        assert exposure(unit) <= 2.0


@pytest.mark.parametrize("host", ["cpu", *CARDS])
def test_systemd_accepts_every_unit(roots: dict[str, Path], host: str, tmp_path: Path) -> None:
    for path in units(roots[host]).glob("qwen*.*"):
        if path.is_file():
            # the programs are not on this machine; systemd-analyze would complain about them alone
            text = re.sub(r"(?m)^(Exec\w+=\+?)\S*", r"\g<1>/bin/true", path.read_text())
            for name in instances(roots[host]) if "@" in path.name else [""]:
                (tmp_path / path.name.replace("@", f"@{name}")).write_text(text)
    for folder in units(roots[host]).glob("*.service.d"):
        shutil.copytree(folder, tmp_path / folder.name)
    checked = subprocess.run(
        ["systemd-analyze", "verify", *(str(path) for path in tmp_path.iterdir() if path.is_file())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in checked.stderr.splitlines() if "qwen" in line] == []


def test_an_engine_may_open_its_own_cards_and_no_others(roots: dict[str, Path]) -> None:
    root = roots["2x3090-nvlink"]
    plan = HostPlan.model_validate_json((root / "etc/qwen/plan.json").read_text())
    for engine in plan.engines:
        allowed = re.findall(r"DeviceAllow=/dev/qwen/(\S+) rw", whole_unit(root, engine.name))
        assert allowed == list(engine.gpus)
    assert "DevicePolicy=closed" in whole_unit(root, plan.engines[0].name)


def test_the_gate_asks_for_what_the_plan_puts_on_each_card(roots: dict[str, Path]) -> None:
    root = roots["2x3090-nvlink"]
    plan = HostPlan.model_validate_json((root / "etc/qwen/plan.json").read_text())
    engine = plan.engines[0]
    asked = json.loads((root / f"etc/qwen/engines/{engine.name}.gate.json").read_text())
    assert asked["cards"] == list(engine.gpus)
    assert asked["port"] == engine.port
    for rank in engine.memory:
        assert rank.total * 1024 >= asked["need_mib"][rank.gpu] > 1024 * (rank.weights + rank.kv)


def test_the_same_files_as_a_deploy_lie_there_with_their_rights(roots: dict[str, Path]) -> None:
    root = roots["cpu"]
    assert (root / "etc/qwen/engines/cpu.yaml").stat().st_mode & 0o777 == 0o640
    assert (root / "usr/local/lib/qwen/gate.py").stat().st_mode & 0o777 == 0o755
    for path in ("etc/apt/apt.conf.d/90qwenlab", "etc/systemd/journald.conf.d/qwenlab.conf", "etc/qwen/inventory.json"):
        assert (root / path).is_file()


def test_secrets_are_named_and_not_written(
    roots: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rendered(tmp_path, HostInventory(), *CPU, "api_key=topsecretkey")
    assert "600 root:root /etc/qwen/secrets/api_key (secret, not written here)" in capsys.readouterr().out
    assert not any("topsecretkey" in path.read_text() for path in tmp_path.rglob("*") if path.is_file())


def test_an_api_on_loopback_is_closed_to_others_by_systemd_too(tmp_path: Path) -> None:
    text = whole_unit(rendered(tmp_path, HostInventory(), *CPU, "generate_api_key=false"), "cpu")
    assert "IPAddressDeny=any\nIPAddressAllow=localhost" in text


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--from", "nowhere.json"], 66, "nowhere.json"),
        (["--from", "{empty}"], 2, "refused"),
        (["--from", "{empty}", "--set", "qwen_prot=1"], 64, "did you mean qwen_port?"),
        (["--from", "{empty}", "--set", "liveness_limit_s=20"], 64, "must be below qwen_liveness_limit_s"),
    ],
)
def test_a_wrong_call_writes_nothing(
    arguments: list[str], code: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text(HostInventory().model_dump_json())
    out = tmp_path / "root"
    given = [argument.format(empty=empty) for argument in arguments]
    assert main(["render", *given, "--out", str(out)]) == code
    assert words in capsys.readouterr().err
    assert not out.exists()


def test_cards_are_named_by_uuid_whatever_order_the_kernel_gave_them(tmp_path: Path) -> None:
    gpus = tmp_path / "gpus"
    for bus, minor in (("0000:01:00.0", 1), ("0000:41:00.0", 0)):
        (gpus / bus).mkdir(parents=True)
        (gpus / bus / "information").write_text(f"Model: NVIDIA\nGPU UUID: GPU-????????\nDevice Minor: \t {minor}\n")
    rows = "GPU-a, 00000000:01:00.0\nGPU-b, 00000000:41:00.0\nGPU-c, 00000000:81:00.0\n"
    found = cards.nodes(rows, gpus)
    assert found == {"GPU-a": "/dev/nvidia1", "GPU-b": "/dev/nvidia0"}
    links = tmp_path / "cards"
    cards.link({**found, "GPU-old": "/dev/nvidia7"}, links)
    cards.link(found, links)
    assert {path.name: str(path.readlink()) for path in links.iterdir()} == found
