"""The gateway's files, from plan and settings alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qwenlab.cli import main
from qwenlab.gateway.files import CONFIG, UNIT_FILE, gateway_files, weights
from qwenlab.host_inventory import HostInventory
from qwenlab.planner.cpu import plan_cpu
from qwenlab.planner.plan import EnginePlan, HostPlan, Predicted
from qwenlab.render import RemoteFile, render
from qwenlab.settings import Settings, SettingsError, load
from tests.exposure import exposure

GOLDEN = Path(__file__).with_name("golden")
CPU = {"engine": "cpu", "cpu_checkpoint": "lab/tiny", "cpu_revision": "a" * 40, "cpu_engines": 2}
TLS = {"gateway_certificate": "host.crt", "gateway_key": "host.key"}


def settings(**more: Any) -> Settings:
    """Settings of a host with two cpu engines and a gateway."""
    return load({f"qwen_{key}": value for key, value in {**CPU, "gateway": True, **more}.items()})


def plan(chosen: Settings) -> HostPlan:
    """Its plan."""
    return plan_cpu(HostInventory(), chosen)


def files(**more: Any) -> dict[str, RemoteFile]:
    """The gateway's files."""
    return gateway_files(plan(settings(**more)), settings(**more))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("plain", {}),
        ("tls", TLS),
        ("scraped", {"scraped_from": ["10.0.0.9", "10.1.0.0/16"], "cpu_engines": 1}),
        ("silence-and-port-443", {**TLS, "gateway_port": 443, "gateway_silence_s": 600, "bind": "::"}),
    ],
)
def test_the_files_are_as_they_were_reviewed(name: str, more: dict[str, Any]) -> None:
    """After a change that is meant: write what the assertion shows into tests/gateway/golden/."""
    made = "".join(f"==> {path} {file.mode}\n{file.content}" for path, file in files(**more).items())
    assert made == (GOLDEN / f"{name}.txt").read_text()


def test_without_a_gateway_there_is_no_file() -> None:
    assert files(gateway=False) == {}


def test_behind_a_gateway_the_engines_listen_on_loopback_alone() -> None:
    chosen = settings(bind="10.0.0.5")
    made = render(plan(chosen), chosen)
    assert "host: 127.0.0.1\n" in made["/etc/qwen/engines/cpu.yaml"].content
    unit = made["/etc/systemd/system/qwen-engine@.service"].content
    assert "IPAddressDeny=any\nIPAddressAllow=localhost" in unit
    assert "NCCL_SOCKET_IFNAME=lo GLOO_SOCKET_IFNAME=lo" in unit
    assert "    bind 10.0.0.5:8080\n" in files(bind="10.0.0.5")[CONFIG].content


def test_without_a_key_the_gateway_answers_on_loopback_alone() -> None:
    assert "    bind 127.0.0.1:8080\n" in files(generate_api_key=False)[CONFIG].content


def with_rates(*rates: float | None) -> tuple[EnginePlan, ...]:
    """Engines of which the plan expects so many tokens per second."""
    (engine,) = plan(settings(cpu_engines=1)).engines
    return tuple(
        engine.model_copy(
            update={"name": f"e{place}", "predicted": Predicted(decode_tok_s=1, aggregate_tok_s=rate) if rate else None}
        )
        for place, rate in enumerate(rates)
    )


@pytest.mark.parametrize(
    ("rates", "shares"),
    [((50.0, 100.0), [50, 100]), ((1.0, 1000.0), [1, 100]), ((70.0, 70.0), [100, 100]), ((50.0, None), [100, 100])],
)
def test_the_share_of_an_engine_follows_its_predicted_rate(rates: tuple[float | None, ...], shares: list[int]) -> None:
    assert list(weights(with_rates(*rates)).values()) == shares


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"gateway_certificate": "a.crt"}, "qwen_gateway_certificate and qwen_gateway_key belong together"),
        ({"gateway_key": "a.key"}, "qwen_gateway_certificate and qwen_gateway_key belong together"),
        ({**TLS, "gateway_lab_ca": "ca"}, "qwen_gateway_certificate and qwen_gateway_lab_ca are both set; keep one"),
        ({**TLS, "gateway": False}, "qwen_gateway_certificate is for the gateway, and qwen_gateway is off"),
        ({"gateway_lab_ca": "ca", "gateway": False}, "qwen_gateway_lab_ca is for the gateway"),
        ({"gateway_lab_ca": "ca", "gateway_names": ["two words"]}, "'two words' is neither a host name nor"),
        ({"scraped_from": ["10.0.0.1/8"]}, "'10.0.0.1/8' is neither an IP address nor a network"),
        ({"gateway_port": 0}, "greater than or equal to 1"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(**more)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("more", "port"), [({}, 8080), (TLS, 8443), ({"gateway_lab_ca": "ca"}, 8443), ({"gateway_port": 80}, 80)]
)
def test_the_port_says_whether_it_speaks_tls(more: dict[str, Any], port: int) -> None:
    assert settings(**more).endpoint_port == port


@pytest.mark.parametrize("more", [{}, {"gateway_port": 443}])
def test_the_unit_is_ok_in_systemds_eyes(more: dict[str, Any], tmp_path: Path) -> None:
    unit = tmp_path / "qwen-gateway.service"
    unit.write_text(files(**more)[UNIT_FILE].content)
    assert exposure(unit) <= 2.0


def test_render_writes_the_files_and_names_the_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "inventory.json").write_text(HostInventory().model_dump_json())
    given = [f"{key}={value}" for key, value in {**CPU, "gateway": "true", "gateway_lab_ca": "ca"}.items()]
    pairs = [part for pair in given for part in ("--set", pair)]
    assert main(["render", "--from", str(tmp_path / "inventory.json"), "--out", str(tmp_path / "root"), *pairs]) == 0
    assert (tmp_path / "root/etc/qwen/gateway/haproxy.cfg").read_text() == files(gateway_lab_ca="ca")[CONFIG].content
    assert (tmp_path / "root" / UNIT_FILE.lstrip("/")).is_file()
    said = capsys.readouterr().out
    assert "600 qwen-gateway:qwen-gateway /etc/qwen/gateway/tls.pem (secret, not written here)" in said
