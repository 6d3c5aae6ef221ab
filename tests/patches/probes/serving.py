"""The HTTP side."""

from __future__ import annotations

from typing import Any

from probes.registry import Surroundings, probe

SECRET = "s3cret"
PATHS = ("/metrics", "/tokenize", "/version", "/load", "/pause", "/healthz", "/health/x", "/ping", "/", "/v1/models")


def client() -> Any:
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route
    from starlette.testclient import TestClient
    from vllm.entrypoints.serve.middleware.authenticate import AuthenticationMiddleware

    async def answer(request: Any) -> Any:
        return PlainTextResponse("open")

    methods = ["GET", "POST", "OPTIONS"]
    routes = [Route("/{path:path}", answer, methods=methods)]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(AuthenticationMiddleware, tokens=[SECRET])]))


@probe("auth-deny-default")
def every_route_asks_for_the_key(s: Surroundings) -> None:
    http = client()
    opened = [path for path in PATHS if http.get(path).status_code != 401]
    opened += [f"POST {path}" for path in PATHS if http.post(path).status_code != 401]
    opened += [f"OPTIONS {path}" for path in PATHS if http.options(path).status_code != 401]
    assert not opened, f"open without a key: {', '.join(opened)}"
    keyed = {"Authorization": f"Bearer {SECRET}"}
    assert all(http.get(path, headers=keyed).status_code == 200 for path in PATHS)
    assert http.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert http.get("/health").status_code == http.get("/health/").status_code == 200
    preflight = {"Origin": "https://ui.example", "Access-Control-Request-Method": "POST"}
    assert http.options("/v1/chat/completions", headers=preflight).status_code == 200
