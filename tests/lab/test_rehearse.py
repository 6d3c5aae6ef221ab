"""plays/rehearse.py on a bare host, with real vLLM: the plan is tried before any weight is fetched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import lab
from tests.lab.deploying import TOO_LONG, ask, deploy, play
from tests.lab.serving import Served, served_host

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

LEFT = "ls -d /run/qwen-rehearsal* /run/systemd/system/qwen-rehearsal* /srv/qwen/models/* /etc/qwen/plan.json"
UNITS = "systemctl list-units --all --plain --no-legend 'qwen-re*'"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host that nothing was deployed to."""
    with served_host(tmp_path_factory.mktemp("rehearse"), deployed=False) as found:
        yield found


def weights_asked_for(served: Served) -> list[str]:
    """Weights that the hub was asked for."""
    return [one.file for one in served.sources.hub.requests if one.file and one.file.endswith(".safetensors")]


def nothing_is_left(host: lab.Host) -> bool:
    """No file below /run, no unit, no checkpoint, no plan."""
    return host.ssh_run(LEFT, check=False).stdout == "" and host.ssh_run(UNITS).stdout == ""


def test_a_plan_that_fits_answers_without_a_weight_and_leaves_nothing(bare: Served) -> None:
    run = play(bare.inventory, "rehearse.py")
    assert run.returncode == 0, run.stderr
    assert "cpu fits and answers" in run.stderr
    assert "KV pool: " in run.stderr
    assert weights_asked_for(bare) == []
    assert nothing_is_left(bare.host)


def test_a_plan_that_does_not_fit_says_why_and_leaves_nothing(bare: Served) -> None:
    run = play(bare.with_settings("long", qwen_cpu_context=TOO_LONG), "rehearse.py")
    assert run.returncode == 1
    assert "cpu does NOT fit or start as planned" in run.stderr
    assert "max_model_len" in run.stderr or "kv-too-small" in run.stderr
    assert nothing_is_left(bare.host)


def test_a_serving_host_is_refused_unless_asked_and_serves_again_after(bare: Served) -> None:
    host = bare.host
    run = deploy(bare.inventory)
    assert run.code == 0, run.text
    refused = play(bare.inventory, "rehearse.py")
    assert refused.returncode == 1
    assert "cpu serves on the planned cards" in refused.stderr
    assert ask(host)[0] == 200

    before = len(bare.sources.hub.requests)
    asked = play(bare.inventory, "rehearse.py", "--data", "qwen_rehearse_stop=True")
    assert asked.returncode == 0, asked.stderr
    assert "cpu fits and answers" in asked.stderr
    assert len(bare.sources.hub.requests) == before  # the checkpoint on the host lent its config
    assert host.ssh_run("ls -d /run/qwen-rehearsal*", check=False).stdout == ""
    assert ask(host)[0] == 200
    again = deploy(bare.inventory)
    assert (again.code, again.changed) == (0, ()), again.text
