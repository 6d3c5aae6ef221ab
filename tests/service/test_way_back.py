"""Commands of the way back and of verification, and what is read from the host for them."""

from __future__ import annotations

import json

import pytest
from pyinfra.api.exceptions import FactProcessError

from qwenlab.facts.generation import DeployAttempts, GenerationSaved, ServedRelease
from qwenlab.facts.host_status import HostStatus
from qwenlab.facts.verification import VerifyResults
from qwenlab.operations import generation, service
from qwenlab.settings import load
from tests.operations.fake import commands

CPU = {"qwen_engine": "cpu", "qwen_cpu_checkpoint": "lab/tiny", "qwen_cpu_revision": "0123456789" * 4}
DOWN = ["umbrella=inactive enabled no", "engine=cpu failed no f f"]


@pytest.mark.parametrize(
    ("said", "lines"),
    [("saved", []), ("differs", ["python3 /usr/local/lib/qwen/generation.py save"])],
)
def test_what_serves_is_kept_once(said: str, lines: list[str]) -> None:
    assert [line for line, _ in commands(generation.remember, {"generation.py state": said})] == lines


def test_a_rollback_on_request_says_what_serves_again() -> None:
    found = [line for line, _ in commands(generation.rollback, {})]
    assert found == ["python3 /usr/local/lib/qwen/generation.py restore --on-request", "_show"]
    assert ServedRelease().process(["cuda-0.33.0-1", "saved"]) == "cuda-0.33.0-1"
    assert ServedRelease().process(["saved"]) is None


@pytest.mark.parametrize(("wanted", "count"), [(True, 2), (False, 0)])
def test_a_failed_start_goes_back_in_the_same_command_unless_told_not_to(wanted: bool, count: int) -> None:
    settings = load({**CPU, "qwen_auto_rollback": wanted})
    lines = [line for line, _ in commands(service.serve, {"fingerprint now": DOWN}, settings=settings)]
    assert sum("python3 /usr/local/lib/qwen/generation.py restore; exit 1" in line for line in lines) == count
    assert all("exit 1" in line for line in lines if "restart" in line)


PROGRAM = "python3 /usr/local/lib/qwen/generation.py attempt"


def attempt(last: str, failed: str, **more: object) -> list[str]:
    """What `configure` does about attempts on a host with this past: its words, or the command."""
    past = json.dumps({"attempt": last, "failed": {"digest": failed, "release": "r", "reason": "y", "at": "z"}})
    given = {"qwen_release_directory": "/opt/qwen", **CPU, **more}
    found = commands(service.configure, {"generation.py attempt": past}, settings=load(given))
    return [line if kind == "refused" else kind for kind, line in found if kind == "refused" or PROGRAM in kind]


def test_what_failed_before_is_refused_until_it_is_asked_for_again() -> None:
    (command,) = attempt("", "")
    digest = command.rsplit(" ", 1)[-1]
    assert attempt(digest, "") == []
    assert attempt("another", "another") == [command]
    (words,) = attempt("", digest)
    assert words.startswith("this very plan and release (r) failed here at z (y)")
    assert words.endswith("--data qwen_retry_failed=True")
    assert attempt("", digest, qwen_retry_failed=True) == [command]


def test_other_settings_are_another_attempt() -> None:
    (one,), (other,) = attempt("", ""), attempt("", "", qwen_cpu_context=1536)
    assert one != other
    assert attempt("", one.rsplit(" ", 1)[-1], qwen_cpu_context=1536) == [other]


@pytest.mark.parametrize("line", ["{", "[]", '{"attempt": ""}', '{"attempt": "", "failed": {"other": 1}}'])
def test_a_damaged_past_fails_its_host_alone(line: str) -> None:
    with pytest.raises(FactProcessError, match="could not be read"):
        DeployAttempts().process([line])


def test_a_host_without_the_program_has_saved_nothing() -> None:
    assert GenerationSaved().process([]) is False
    assert GenerationSaved().process(["saved"]) is True


def test_a_verification_is_read_and_told() -> None:
    row = {"name": "fact", "ok": False, "detail": "no Paris"}
    result = {
        "engine": "one",
        "at": "now",
        "release": "r",
        "ok": False,
        "checks": [row],
        "rates": {"decode_tok_s": 5.0},
    }
    (read,) = VerifyResults().process([json.dumps({**result, "predicted": {"decode_tok_s": 10.0}})])
    assert read.lines()[1:] == ["  fact        FAILED   no Paris", "  decode_tok_s        5.0 (plan: 10)"]


@pytest.mark.parametrize("line", ["{", "[]"])
def test_a_damaged_status_fails_its_host_alone(line: str) -> None:
    with pytest.raises(FactProcessError, match="could not be read"):
        HostStatus().process([line])
