"""A served host, with real vLLM and systemd: what its units allow, who is let in, and what people find there."""

from __future__ import annotations

import json

import pytest

from tests.lab.deploying import API_KEY, TOO_LONG, ask, deploy
from tests.lab.serving import QUICK, UNIT, Served, request, show

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

SETTINGS = QUICK


def test_the_sandboxed_engine_answers_and_is_ok_in_systemds_eyes(served: Served) -> None:
    assert ask(served.host)[0] == 200
    said = served.host.ssh_run(f"systemd-analyze security --no-pager --threshold=20 {UNIT}").stdout
    assert " OK " in said.splitlines()[-1]
    status = served.host.ssh_run(f"grep -E 'NoNewPrivs|CapBnd|Seccomp:' /proc/{show(served.host, 'MainPID')}/status")
    assert status.stdout.split() == ["CapBnd:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]


def test_no_route_but_health_answers_without_the_key(served: Served) -> None:
    status, page = request(served.host, "GET", "/openapi.json", API_KEY)
    assert status == 200
    routes = [
        (method.upper(), path.replace("{", "").replace("}", ""))
        for path, methods in json.loads(page)["paths"].items()
        for method in methods
    ]
    routes += [("GET", path) for path in ("/docs", "/redoc", "/openapi.json", "/metrics")]
    assert len(routes) > 15
    open_ones = [path for method, path in routes if request(served.host, method, path, None)[0] != 401]
    assert open_ones == ["/health"]


def test_verification_passes_and_its_result_lies_on_the_host(served: Served) -> None:
    run = served.play("verify.py")
    assert run.returncode == 0, run.stderr
    assert "mechanics judged" in run.stderr
    result = json.loads(served.host.ssh_run("cat /var/lib/qwenlab/verify/cpu.json").stdout)
    assert result["ok"] is True
    assert result["release"].startswith("cpu-0.32.0-")
    assert {row["name"] for row in result["checks"] if row["ok"]} >= {"stream", "schema", "needle", "prefix", "rate"}


def test_a_deploy_whose_engine_does_not_start_brings_the_former_plan_back(served: Served) -> None:
    host = served.host
    good = host.get("/etc/qwen/plan.json")
    run = served.redeploy(qwen_cpu_context=TOO_LONG)
    assert run.code == 1
    assert "the engine did not start: the lines above say why" in run.text
    assert "rolled back: release cpu-0.32.0-" in run.text
    assert host.get("/etc/qwen/plan.json") == good
    assert ask(host)[0] == 200


def test_a_redeploy_after_all_this_changes_nothing_and_status_is_content(served: Served) -> None:
    run = deploy(served.inventory)
    assert (run.code, run.changed) == (0, ()), run.text
    status = served.play("status.py")
    assert status.returncode == 0, status.stderr
    assert "serving: release cpu-0.32.0-" in status.stderr
    assert "drift" not in status.stderr
