"""plays/prune.py on a host: what plan, kept generation or running engine use stays, the rest is shown and goes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.checkpoint.fetching import REPO, repository
from tests.lab.checkpoint_rack import Rack, racked
from tests.lab.deploying import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.slow]
MODELS = f"/srv/qwen/models/{REPO}"


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """One host."""
    with racked(1, tmp_path_factory.mktemp("prune")) as found:
        yield found


def revision(rack: Rack, number: int) -> str:
    """A commit more of the repository, deployed and kept as what serves well."""
    rack.commit = rack.hub.add(REPO, repository(rack.directory / f"source-{number}", shard_bytes=500_000, seed=number))
    done = rack.run(f"deploy-{number}", count=1, qwen_model_source="hub", lab_configure=True)
    assert done.returncode == 0, done.stderr
    return rack.commit


def prune(rack: Rack, *options: str) -> subprocess.CompletedProcess[str]:
    """The play, to its end."""
    with rack.play(ROOT / "plays/prune.py", "prune", *options, count=1) as process:
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def test_only_what_nobody_uses_is_shown_and_removed(rack: Rack) -> None:
    host = rack.hosts[0]
    unused, running, before, present = (revision(rack, number) for number in (1, 2, 3, 4))
    kept = host.ssh_run("grep -rhoE '[0-9a-f]{40}' /var/lib/qwenlab/generations --include=plan.json | sort -u").stdout
    assert set(kept.split()) == {before, present}
    shard = f"{MODELS}/{running}/model-00001-of-00003.safetensors"
    host.ssh_run(f"systemd-run --quiet --unit=old-engine --uid=qwen tail -f {shard}")
    host.ssh_run(f"install -d /srv/qwen/models/own/{'e' * 40} && touch /srv/qwen/models/own/{'e' * 40}/precious")

    shown = prune(rack, "--dry").stderr
    assert f"unused: {MODELS}/{unused}" in shown
    assert "MB to free" in shown
    assert not any(one in shown for one in (running, before, present, "precious"))
    assert host.ssh_run(f"ls {MODELS}").stdout.split() == sorted([unused, running, before, present])

    done = prune(rack, "-y").stderr
    assert f"unused: {MODELS}/{unused}" in done
    assert host.ssh_run(f"ls {MODELS}").stdout.split() == sorted([running, before, present])
    assert host.ssh_run("find /srv/qwen/models/own -type f").stdout.strip().endswith("precious")

    host.ssh_run("systemctl stop old-engine")
    prune(rack, "-y")
    assert host.ssh_run(f"ls {MODELS}").stdout.split() == sorted([before, present])
    assert "every checkpoint is in use" in prune(rack, "-y", "-v").stderr
    assert all('"whole": true' in answer for answer in rack.verified())
