"""The battery against a server that answers well, and against servers that each do one thing wrong."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import FactProcessError

from qwenlab.facts.verification import VerifyResults
from qwenlab.remote import verify
from qwenlab.remote.battery.checks import haystack
from qwenlab.remote.battery.server import Engine

PLAN: dict[str, Any] = {
    "name": "engine1",
    "port": 0,
    "gpus": ["GPU-a"],
    "max_model_len": 4096,
    "args": {"enable-auto-tool-choice": True},
    "speculation": {"method": "mtp", "tokens": 3},
    "predicted": {"decode_tok_s": 100.0},
}
STORY = " ".join(f"word{number}" for number in range(100))


class Server(http.server.BaseHTTPRequestHandler):
    """An engine that answers every question of the battery; `wrong` names what it does wrong."""

    wrong = ""
    hits = 0

    def do_GET(self) -> None:
        """/metrics."""
        Server.hits += 0 if self.wrong == "prefix" else 512
        accepted = 0 if self.wrong == "acceptance" else 200
        text = f'vllm:prefix_cache_hits_total{{engine="0"}} {Server.hits}\n'
        self._send(
            f"{text}vllm:spec_decode_num_drafts_total 100\nvllm:spec_decode_num_accepted_tokens_total {accepted}\n"
        )

    def do_POST(self) -> None:
        """Completions."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("Authorization") != "Bearer key":
            self.send_error(401)
            return
        text = str(body.get("messages", [{}])[0].get("content", ""))
        if body.get("stream"):
            self._send(self._stream(body, text))
            return
        content = self._content(body, text)
        choice = {"message": {"content": content}, "finish_reason": "stop"}
        self._send(json.dumps({"choices": [choice], "usage": {"prompt_tokens": len(text.split())}}))

    def _content(self, body: dict[str, Any], text: str) -> str:
        if "response_format" in body:
            return '{"colour": "mauve"}' if self.wrong == "schema" else '{"colour": "red", "warm": true}'
        if "lighthouse" in text:
            return {"loop": "again " * 100, "nonsense": "!" * 100}.get(self.wrong, STORY)
        if "Count" in text:
            return "" if self.wrong == "concurrent" else "1 2 3"
        return "London" if self.wrong == "fact" else "Paris"

    def _stream(self, body: dict[str, Any], text: str) -> str:
        deltas: list[dict[str, Any]] = [{"content": word} for word in ("a ", "b ", "c ")]
        if "tools" in body:
            arguments = '{"city": ' if self.wrong == "tool" else '{"city": "Oslo"}'
            deltas = [{"tool_calls": [{"function": {"name": "get_weather", "arguments": arguments}}]}] * 1
        elif "vault" in text:
            deltas = [{"content": "1234" if self.wrong == "needle" else "73"}, {"content": "19"}]
        made = 3 if self.wrong == "rate" else body["max_tokens"]
        events: list[dict[str, Any]] = [{"choices": [{"delta": delta}]} for delta in deltas]
        events.append({"choices": [], "usage": {"prompt_tokens": len(text.split()), "completion_tokens": made}})
        end = [] if self.wrong == "stream" else ["data: [DONE]"]
        return "\n\n".join([*(f"data: {json.dumps(event)}" for event in events), *end]) + "\n\n"

    def _send(self, text: str) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def serving(wrong: str) -> Iterator[int]:
    """The port of a server that does this wrong."""
    handler = type("Handler", (Server,), {"wrong": wrong})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def result(wrong: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **plan: Any) -> dict[str, Any]:
    """What the battery says about a server that does this wrong."""
    monkeypatch.setattr(verify, "RESULTS", folder)
    settings = {"host": "127.0.0.1", "model": "m", "served-model-name": ["qwen"], "release": str(folder)}
    with serving(wrong) as port:
        return verify.verify({**PLAN, "port": port, **plan}, settings, "key", 50.0)


def failed(of: dict[str, Any]) -> list[str]:
    """Names of the checks that failed."""
    return [row["name"] for row in of["checks"] if row["ok"] is False]


def test_a_good_engine_passes_every_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = result("", tmp_path, monkeypatch)
    assert [(row["name"], row["ok"]) for row in found["checks"]] == [(name, True) for name, _ in verify.CHECKS]
    assert found["rates"]["acceptance_length"] == 3.0
    assert found["ok"] is True
    assert "(plan: 100)" in verify.table(found)
    assert json.loads((tmp_path / "engine1.json").read_text()) == found


@pytest.mark.parametrize(
    "wrong", ["fact", "tool", "schema", "needle", "prefix", "concurrent", "loop", "rate", "acceptance"]
)
def test_each_fault_fails_its_own_check(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = result(wrong, tmp_path, monkeypatch)
    assert failed(found) == [wrong]
    assert found["ok"] is False


def test_a_stream_that_is_cut_off_fails_wherever_streams_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failed(result("stream", tmp_path, monkeypatch)) == ["stream", "tool", "needle"]


def test_an_engine_that_computes_nonsense_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = result("nonsense", tmp_path, monkeypatch)
    assert "not-a-numbers" in next(row["detail"] for row in found["checks"] if row["name"] == "loop")


@pytest.mark.parametrize("wrong", ["fact", "needle", "loop"])
def test_of_a_small_checkpoint_only_the_mechanics_are_judged(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = result(wrong, tmp_path, monkeypatch, gpus=[], args={}, speculation=None)
    assert found["ok"] is True
    assert [row["name"] for row in found["checks"] if row["ok"] is None] == ["tool", "acceptance"]
    assert "mechanics" in found["judged"]


def test_a_result_on_the_host_is_read_back_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result("loop", tmp_path, monkeypatch)
    line = (tmp_path / "engine1.json").read_text().replace("\n", "")
    (read,) = VerifyResults().process([line])
    shown = "\n".join(read.lines())
    assert "loop        FAILED" in shown
    assert "(plan: 100)" in shown


@pytest.mark.parametrize("line", ["{", "[]", '{"engine": "x"}', '{"unknown": 1}'])
def test_a_damaged_result_fails_its_host_alone(line: str) -> None:
    with pytest.raises(FactProcessError, match="could not be read"):
        VerifyResults().process([line])


def test_an_engine_that_does_not_answer_fails_everything_with_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "RESULTS", tmp_path)
    with serving("") as port:
        pass
    settings = {"host": "127.0.0.1", "model": "m", "release": str(tmp_path)}
    found = verify.verify({**PLAN, "port": port}, settings, None, 50.0)
    assert len(failed(found)) == len(verify.CHECKS)
    assert "refused" in found["checks"][0]["detail"]


def test_a_rate_that_fell_is_a_regression() -> None:
    known = {"decode_tok_s": 100.0, "prefill_tok_s": 1000.0}
    now = {"decode_tok_s": 79.0, "prefill_tok_s": 801.0}
    assert verify.regressions(now, known, 20) == ["decode_tok_s fell from 100.0 to 79.0"]
    assert verify.regressions(now, {}, 20) == []


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        ({}, {}),
        ({"rates": {"a": 1.0}}, {"a": 1.0}),
        ({"rates": {"a": 1.0}, "ok": True, "subject": ["card"]}, {"a": 1.0}),
        ({"rates": {"a": 0.1}, "ok": False, "subject": ["card"], "baseline": {"a": 1.0}}, {"a": 1.0}),
        ({"rates": {"a": 1.0}, "ok": True, "subject": ["another card"]}, {}),
    ],
    ids=["first-run", "older-format", "good", "failed", "other-cards"],
)
def test_rates_are_held_against_the_last_good_run_on_the_same_cards(
    before: dict[str, Any], wanted: dict[str, float]
) -> None:
    assert verify.baseline({"subject": ["card"]}, before) == wanted


def test_a_regression_stays_one_until_it_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "engine1.json").write_text('{"rates": {"decode_tok_s": 1e9}, "ok": true}')
    for _ in range(2):
        found = result("", tmp_path, monkeypatch)
        assert found["regressions"][0].startswith("decode_tok_s fell from 1000000000.0")
        assert "if this is how it shall be: rm " in verify.table(found)
    (tmp_path / "engine1.json").unlink()
    assert result("", tmp_path, monkeypatch)["ok"] is True


def test_the_long_prompt_begins_otherwise_at_every_run_and_not_within_one() -> None:
    """The prefix cache of an earlier run would make the prefill rate up; the second turn is to be found in it."""
    with serving("") as port:
        engines = [Engine(PLAN, f"http://127.0.0.1:{port}", "key", "m", trained=True) for _ in range(2)]
        first, again, other = (haystack(engine)[0]["content"] for engine in (engines[0], engines[0], engines[1]))
    assert first == again
    assert first[:8] != other[:8]
    assert first[8:] == other[8:]


def test_the_result_before_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "engine1.json").write_text('{"rates": {"decode_tok_s": 1e9}}')
    found = result("", tmp_path, monkeypatch)
    assert found["regressions"][0].startswith("decode_tok_s fell from")
    assert found["ok"] is False
    assert json.loads((tmp_path / "engine1.before.json").read_text())["rates"]["decode_tok_s"] == 1e9
