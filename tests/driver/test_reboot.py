"""One reboot: ordered detached, told by the boot id, bounded, and not repeated on other hosts once one is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qwenlab.operations import reboot


@dataclass
class FakeHost:
    """A host that answers with each of `boots` in turn, one a connection; None where it does not answer."""

    boots: list[str | None]
    name: str = "rack1"
    ordered: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    connected: bool = True
    connector_data: dict[str, Any] = field(default_factory=dict)

    def run_shell_command(self, command: Any, **arguments: Any) -> tuple[bool, Any]:
        text = str(command.get_raw_value())
        if "reboot" in text:
            self.ordered.append(text)
            return True, SimpleNamespace(stdout="", stderr="")
        answer = self.boots[0]
        if answer is None:
            raise OSError("No route to host")
        return True, SimpleNamespace(stdout=answer, stderr="")

    def connect(self, show_errors: bool) -> None:
        if len(self.boots) > 1:
            self.boots.pop(0)
        self.connected = True

    def disconnect(self) -> None:
        self.connected = False

    def log(self, message: str, log_func: Any) -> None:
        pass

    def log_styled(self, message: str, fg: str, log_func: Any) -> None:
        self.said.append(message)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock that only sleeping moves; what was slept is returned."""
    slept: list[float] = []
    monkeypatch.setattr("qwenlab.operations.reboot.time.monotonic", lambda: sum(slept))
    monkeypatch.setattr("qwenlab.operations.reboot.time.sleep", slept.append)
    yield slept
    reboot._lost.clear()


def run(host: FakeHost, timeout_s: int = 300) -> bool:
    return reboot._reboot(cast(Any, None), cast(Any, host), "before", 1, timeout_s, {})


def test_b97_the_reboot_is_handed_to_systemd_so_that_no_session_waits_for_it() -> None:
    host = FakeHost(["before", "after"])
    assert run(host)
    assert host.ordered == ["systemd-run --quiet --collect --on-active=1 systemctl reboot"]


def test_b98_a_host_that_still_answers_with_the_old_boot_has_not_rebooted(clock: list[float]) -> None:
    assert run(FakeHost(["before", "before", None, None, "after"]))
    assert clock == sorted(clock)  # the questions come further and further apart
    assert len(clock) == 4


def test_b98_a_host_that_never_comes_back_fails_with_the_last_error() -> None:
    host = FakeHost([None])
    assert not run(host, timeout_s=60)
    assert "did not come back within 60 s of its reboot (No route to host)" in host.said[0]


def test_no_further_host_is_rebooted_after_one_is_lost() -> None:
    run(FakeHost([None], name="rack1"), timeout_s=60)
    second = FakeHost(["before", "after"], name="rack2")
    assert not run(second)
    assert second.ordered == []
    assert "rack1 did not come back" in second.said[0]


def test_b95_a_sudo_password_left_on_the_host_that_went_down_is_forgotten() -> None:
    host = FakeHost(["before", "after"])
    host.connector_data["sudo_askpass_path"] = "/tmp/askpass"
    assert run(host)
    assert not host.connector_data["sudo_askpass_path"]
