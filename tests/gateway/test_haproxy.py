"""The rendered configuration in the distribution's HAProxy, with stand-ins for engines on this machine's loopback."""

from __future__ import annotations

import http.client
import json
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.running import CHAT, Running, gateway
from tests.gateway.stand_in import PATIENCE_S

pytestmark = pytest.mark.lab


def wait_until(true: Any) -> None:
    """Returns when it is; the test's own time limit is the engines' patience."""
    done = threading.Event()
    for _ in range(int(PATIENCE_S / 0.02)):
        if true():
            return
        done.wait(0.02)
    pytest.fail("it did not come true")


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/docs", "/redoc", "/openapi.json", "/metrics", "/metrics/a", "/tokenize", "/detokenize", "/version"),
        *("/ping", "/invocations", "/score", "/rerank", "/pooling", "/classify", "/server_info", "/load", "/sleep"),
        *(
            "/v2/rerank",
            "/inference/v1/generate",
            "/v1",
            "/v1x",
            "//v1/models",
            "/V1/models",
            "/health/",
            "/v1/../docs",
        ),
        *("/v1/%2e%2e/docs", "/v1/..%2fdocs", "/v1/models/../../tokenize"),
    ],
)
def test_nothing_beside_the_api_passes(closed: Running, path: str) -> None:
    for method in ("GET", "POST", "PUT", "OPTIONS"):
        status, body = closed.ask(method, path)
        assert (status, body["error"]["type"]) == (404, "not_found")
    assert closed.engines["a"].asked == []


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway that is asked for what it must not pass."""
    with gateway(tmp_path_factory.mktemp("closed"), "a") as running:
        yield running


def test_the_api_and_the_health_pass(tmp_path: Path) -> None:
    with gateway(tmp_path, "a") as running:
        assert running.ask("GET", "/v1/models") == (200, {"engine": "a"})
        assert running.ask("POST", CHAT, {}) == (200, {"engine": "a"})
        assert running.ask("GET", "/health") == (200, {"status": "ok"})


def test_a_token_goes_on_when_it_comes(tmp_path: Path) -> None:
    with gateway(tmp_path, "a") as running:
        connection = running.connection()
        connection.request("POST", CHAT, json.dumps({"stream": True}))
        answer = connection.getresponse()
        assert answer.readline() == b"data: one\n"  # the engine has not made the second one yet
        running.engines["a"].go.set()
        assert answer.read() == b"\ndata: two\n\n"


def test_requests_go_to_the_engine_with_the_fewest(tmp_path: Path) -> None:
    with gateway(tmp_path, "a", "b") as running:
        first, second = running.engines.values()
        held = [running.hold() for _ in range(6)]
        wait_until(lambda: [len(first.asked), len(second.asked)] == [3, 3])
        first.go.set()
        # what the first engine held is answered; the second goes on holding, so the next three are the first one's
        wait_until(lambda: sum(is_answered(one) for one in held) == 3)
        first.go.clear()
        held += [running.hold() for _ in range(3)]
        wait_until(lambda: [len(first.asked), len(second.asked)] == [6, 3])


def is_answered(connection: http.client.HTTPConnection) -> bool:
    """Whether an answer has begun to come."""
    return bool(select.select([connection.sock], [], [], 0)[0])


def test_an_engine_that_is_twice_as_fast_gets_twice_as_many(tmp_path: Path) -> None:
    with gateway(tmp_path, "slow", "fast") as running:
        held = []
        for number in range(6):
            held.append(running.hold())
            wait_until(lambda wanted=number: sum(len(one.asked) for one in running.engines.values()) == wanted + 1)
        assert {name: len(one.asked) for name, one in running.engines.items()} == {"slow": 2, "fast": 4}


def test_a_stopped_engine_costs_no_request_and_is_asked_again_when_it_is_back(tmp_path: Path) -> None:
    with gateway(tmp_path, "a", "b") as running:
        running.stop("a")
        answers = [running.ask("POST", CHAT, {}) for _ in range(20)]
        assert answers == [(200, {"engine": "b"})] * 20
        running.start("a")
        wait_until(lambda: running.ask("GET", "/v1/models")[1] == {"engine": "a"})


def test_without_an_engine_the_answer_is_503_in_json_and_so_is_health(tmp_path: Path) -> None:
    with gateway(tmp_path, "a") as running:
        running.stop("a")
        wait_until(lambda: running.ask("GET", "/health")[0] == 503)
        status, body = running.ask("POST", CHAT, {})
        assert (status, body["error"]["type"]) == (503, "service_unavailable")
        running.start("a")
        wait_until(lambda: running.ask("GET", "/health")[0] == 200)


def test_an_engine_that_dies_over_an_answer_is_told_and_not_asked_again(tmp_path: Path) -> None:
    with gateway(tmp_path, "a", "b") as running:
        status, body = running.ask("POST", CHAT, {"die": True})
        assert (status, body["error"]["type"]) == (502, "bad_gateway")
        assert sum(len(one.asked) for one in running.engines.values()) == 1


def test_a_client_that_goes_away_frees_the_engine(tmp_path: Path) -> None:
    with gateway(tmp_path, "a") as running:
        connection = running.hold()
        assert running.engines["a"].holding.acquire(timeout=PATIENCE_S)
        connection.close()
        assert running.engines["a"].gone.wait(PATIENCE_S)


def test_a_reload_cuts_no_stream_and_loses_no_request(tmp_path: Path) -> None:
    with gateway(tmp_path, "a") as running:
        connection = running.connection()
        connection.request("POST", CHAT, json.dumps({"stream": True}))
        stream = connection.getresponse()
        assert stream.readline() == b"data: one\n"
        statuses: list[int] = []
        done = threading.Event()

        def ask_on() -> None:
            while not done.is_set():
                statuses.append(running.ask("POST", CHAT, {})[0])

        asking = threading.Thread(target=ask_on)
        asking.start()
        try:
            for _ in range(3):
                running.reload()
                before = len(statuses)
                wait_until(lambda seen=before: len(statuses) > seen + 20)
        finally:
            done.set()
            asking.join()
        assert set(statuses) == {200}
        running.engines["a"].go.set()
        assert stream.read() == b"\ndata: two\n\n"


def test_the_engine_sees_the_client_and_not_what_it_claims(tmp_path: Path) -> None:
    with gateway(tmp_path, "a") as running:
        running.ask("GET", "/v1/models", None, **{"X-Forwarded-For": "192.0.2.1", "Authorization": "Bearer key"})
        ((_, headers),) = running.engines["a"].asked
        assert (headers["x-forwarded-for"], headers["authorization"]) == ("127.0.0.1", "Bearer key")


def test_tls_by_the_labs_own_authority(tmp_path: Path) -> None:
    with gateway(tmp_path, "a", tls=True) as running:
        assert running.ask("GET", "/v1/models") == (200, {"engine": "a"})
        assert running.engines["a"].asked[0][1]["x-forwarded-proto"] == "https"
        strangers = Running(running.port, running.process, {}, {}, context=ssl.create_default_context())
        with pytest.raises(ssl.SSLCertVerificationError):
            strangers.ask("GET", "/v1/models")
        with pytest.raises((http.client.HTTPException, OSError)):
            Running(running.port, running.process, {}, {}).ask("GET", "/v1/models")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
@pytest.mark.parametrize(("version", "taken"), [("TLSv1_1", False), ("TLSv1_2", True), ("TLSv1_3", True)])
def test_old_tls_is_refused_and_http2_is_offered(
    version: str, taken: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with gateway(tmp_path_factory.mktemp("tls"), "a", tls=True) as running:
        assert running.context is not None
        running.context.minimum_version = running.context.maximum_version = ssl.TLSVersion[version]
        running.context.set_ciphers("DEFAULT:@SECLEVEL=0")
        running.context.set_alpn_protocols(["h2", "http/1.1"])
        with socket.create_connection(("127.0.0.1", running.port), PATIENCE_S) as plain:
            try:
                with running.context.wrap_socket(plain, server_hostname="localhost") as spoken:
                    agreed = spoken.selected_alpn_protocol()
            except (ssl.SSLError, OSError):
                agreed = None
        assert agreed == ("h2" if taken else None)


def test_figures_pass_to_those_who_may_scrape(tmp_path: Path) -> None:
    with gateway(tmp_path, "a", "b", scraped_from=["127.0.0.0/8"]) as running:
        status, page = running.ask("GET", "/metrics/b", Authorization="Bearer key")
        assert (status, page) == (200, 'vllm:num_requests_running{engine="b"} 3\n')
        ((path, headers),) = running.engines["b"].asked
        assert (path, headers["authorization"]) == ("/metrics", "Bearer key")
        own = running.ask("GET", "/metrics")[1]
        assert 'haproxy_server_status{proxy="engines",server="a",state="UP"} 1' in own
        assert running.ask("GET", "/metrics/c")[0] == 404


def test_figures_pass_to_nobody_else(tmp_path: Path) -> None:
    with gateway(tmp_path, "a", scraped_from=["192.0.2.0/24"]) as running:
        assert [running.ask("GET", path)[0] for path in ("/metrics", "/metrics/a")] == [404, 404]
        assert running.engines["a"].asked == []
