"""The probe command, recordings on disk, scrubbing, and the pyinfra fact."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyinfra.api.exceptions import FactProcessError

from qwenlab.cli import main
from qwenlab.facts.host_fact import GpuHost
from qwenlab.facts.inventory import build_inventory
from qwenlab.facts.readings import ParseError
from qwenlab.facts.recording import Recording, load, save
from qwenlab.facts.scrub import identifying, scrubbed
from qwenlab.host_inventory import HostInventory, ParseState
from tests.facts.hosts import H200_PAIR, corpus_path


def test_json_of_a_recorded_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--from", str(H200_PAIR), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["summary"]["nvlink_pairs"] == {"0-1": 18}
    assert document["diagnoses"] == document["inventory"]["diagnoses"]
    again = HostInventory.model_validate(document["inventory"])
    assert again == build_inventory(load(H200_PAIR))


def test_without_options_people_get_a_table_with_cards_links_and_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--from", str(corpus_path("46"))]) == 0
    printed = capsys.readouterr().out
    assert "NVIDIA GeForce RTX 5090" in printed
    assert "PHB-" in printed
    assert "peer_access_not_granted" in printed


@pytest.mark.parametrize(("number", "status"), [("46", 0), ("65", 1), ("22", 1)])
def test_exit_status_tells_whether_a_card_can_be_used(
    number: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", "--from", str(corpus_path(number)), "--json"]) == status
    assert json.loads(capsys.readouterr().out)["summary"]


def test_a_recording_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--from", str(tmp_path)]) == 66
    assert "holds no capture" in capsys.readouterr().err
    assert main(["probe", "--from", str(tmp_path / "absent")]) == 66
    broken = tmp_path / "x.yaml"
    broken.write_text("a: [")
    assert main(["probe", "--from", str(broken)]) == 66


def test_a_recording_survives_the_disk(tmp_path: Path) -> None:
    recording = Recording(
        {"smi_xml": "<?xml?>", "topo": "\tGPU0\n", "nvml": "{}", "empty": ""}, {"smi_xml": 0, "nvml": 1}
    )
    save(recording, tmp_path / "r")
    assert {path.name for path in (tmp_path / "r").iterdir()} == {"smi.xml", "topo.txt", "nvml.json", "status.json"}
    back = load(tmp_path / "r")
    assert back.captures == {"smi_xml": "<?xml?>", "topo": "\tGPU0\n", "nvml": "{}"}
    assert back.statuses == recording.statuses
    (tmp_path / "r" / "status.json").write_text("[]")
    with pytest.raises(ParseError):
        load(tmp_path / "r")


def test_scrubbing_keeps_sources_alike_and_leaves_nothing_behind() -> None:
    real = "GPU-0badc0de-1234-5678-9abc-def012345678"
    xml = (H200_PAIR / "smi.xml").read_text().replace("GPU-1aaaaaaa-3811-abea-ebb9-000000000001", real)
    xml = xml.replace("<serial>1650000000001<", "<serial>1420923000123<")
    before = Recording(
        {
            "smi_xml": xml,
            "nvml": json.dumps({"uuid": real}),
            "kernel": f"NVRM: GPU at PCI:0000:01:00: {real}\nNVRM: peer 10.1.2.3\n",
            "hostname": "rack7-box3\n",
            "packages": "libnvidia-compute-580\t580.173.02-0ubuntu0.24.04.1\n",
            "boot_id": "0badc0de-1234-5678-9abc-def012345678\n",
        }
    )
    after = scrubbed(before)
    text = "\n".join(after.captures.values())
    assert identifying(text, before) == []
    assert not any(value in text for value in (real, "1420923000123", "10.1.2.3", "rack7-box3"))
    assert "boot_id" not in after.captures
    assert after.captures["packages"] == before.captures["packages"]
    uuid = json.loads(after.captures["nvml"])["uuid"]
    assert uuid in after.captures["smi_xml"]
    assert uuid in after.captures["kernel"]
    assert scrubbed(before) == after


def test_identifying_values_are_found_where_they_remain() -> None:
    before = Recording({"nvml": "GPU-0badc0de-1234-5678-9abc-def012345678"})
    assert identifying("x GPU-0badc0de-1234-5678-9abc-def012345678", before) == ["0badc0de-1234-5678-9abc-def012345678"]


def test_recording_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    """On a GPU machine without pip the recorder runs from a copied tree."""
    program = (
        "import sys; sys.path = [path for path in sys.path if 'site-packages' not in path] + [sys.argv[1]]\n"
        "from qwenlab.cli import main\n"
        "status = main(['probe', '--record', sys.argv[2], '--scrub'])\n"
        "foreign = {'pydantic', 'yaml', 'rich', 'pyinfra'} & set(sys.modules)\n"
        "assert status == 0 and not foreign, (status, foreign)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-S", "-c", program, str(root), str(tmp_path / "r")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r" / "os_release.txt").exists()
    assert not (tmp_path / "r" / "boot_id.txt").exists()


def test_the_fact_is_one_command_whose_text_stays_out_of_logs() -> None:
    command = GpuHost().command()
    assert len(str(command)) < 100
    assert command.get_raw_value().startswith("printf %s ")


def test_the_fact_reads_what_the_command_prints() -> None:
    lines = ["@@@qwenlab smi_xml 0", *(H200_PAIR / "smi.xml").read_text().split("\n"), "@@@qwenlab end"]
    inventory = GpuHost().process(lines)
    assert [gpu.name for gpu in inventory.usable_gpus] == ["NVIDIA H200"] * 2
    assert GpuHost.default().parse is ParseState.ERROR


def test_cut_output_fails_the_host_only() -> None:
    with pytest.raises(FactProcessError, match="cut off"):
        GpuHost().process(["@@@qwenlab topo 0", "GPU0"])
