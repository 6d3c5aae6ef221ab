"""An engine's API, asked from its own host."""

from __future__ import annotations

import re
import urllib.request

METRICS_TIMEOUT_S = 5


def address(host: str | None, port: int) -> str:
    """Where an engine that listens at `host` (vLLM's own default where None) is asked on its own host."""
    name = {None: "127.0.0.1", "": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{name}]:{port}" if ":" in str(name) else f"http://{name}:{port}"


def opener() -> urllib.request.OpenerDirector:
    """Requests go straight to the engine, whatever proxies the host uses."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def metrics(base: str, key: str | None, timeout_s: float = METRICS_TIMEOUT_S) -> str:
    """Text of /metrics. Raises OSError when it does not answer in time."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with opener().open(urllib.request.Request(f"{base}/metrics", headers=headers), timeout=timeout_s) as page:
        return str(page.read().decode(errors="replace"))


def total(page: str, name: str) -> float | None:
    """Sum of a metric over its labels; None when it is not there."""
    pattern = rf"^{re.escape(name)}(?:\{{[^}}]*\}})? ([0-9.e+-]+)$"
    found = re.findall(pattern, page, re.MULTILINE)
    return sum(float(text) for text in found) if found else None
