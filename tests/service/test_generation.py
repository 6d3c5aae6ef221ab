"""Keeping what served well and bringing it back, on a file tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwenlab.remote import generation
from qwenlab.remote.generation import NothingToRestoreError


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host that serves one engine from release A."""
    monkeypatch.setattr(generation, "CURRENT", Path("/opt/qwen/current"))
    for name in ("A", "B"):
        home = tmp_path / "opt/qwen/releases" / name
        home.mkdir(parents=True)
        (home / "release.json").touch()
    (tmp_path / "etc/systemd/system/qwen-engine@one.service.d").mkdir(parents=True)
    (tmp_path / "etc/qwen/engines").mkdir(parents=True)
    deploy(tmp_path, "A", one="first")
    return tmp_path


def deploy(root: Path, release: str, **engines: str) -> None:
    """Let the host have these engines, as a deploy leaves it."""
    link = root / "opt/qwen/current"
    link.unlink(missing_ok=True)
    link.symlink_to(f"releases/{release}")
    for old in (root / "etc/qwen/engines").iterdir():
        old.unlink()
    for name, text in engines.items():
        (root / f"etc/qwen/engines/{name}.yaml").write_text(text)
    (root / "etc/qwen/plan.json").write_text(str(engines))
    (root / "etc/systemd/system/qwen.service").write_text(f"# {release}")


def engines(root: Path) -> dict[str, str]:
    """Engine files by name."""
    return {path.stem: path.read_text() for path in (root / "etc/qwen/engines").iterdir()}


def test_a_failed_deploy_goes_back_to_what_served(root: Path) -> None:
    assert generation.save(root) is True
    deploy(root, "B", one="second", two="new")
    generation.put_back(root, generation.chosen(root, on_request=False))
    assert engines(root) == {"one": "first"}
    assert generation.release(root) == "A"
    assert (root / "etc/systemd/system/qwen.service").read_text() == "# A"
    assert generation.save(root) is False


def test_on_request_it_goes_back_one_further_and_forth_again(root: Path) -> None:
    generation.save(root)
    deploy(root, "B", one="second")
    generation.save(root)
    for wanted in ("A", "B", "A"):
        generation.put_back(root, generation.chosen(root, on_request=True))
        assert generation.release(root) == wanted
        generation.save(root)


def test_the_gateway_goes_back_and_forth_with_the_engines_and_its_key_stays(root: Path) -> None:
    config, unit = root / "etc/qwen/gateway/haproxy.cfg", root / "etc/systemd/system/qwen-gateway.service"
    config.parent.mkdir()
    for path in (config, unit):
        path.write_text("on")
    key = config.with_name("tls.pem")
    key.write_text("key")
    generation.save(root)
    config.unlink()
    unit.unlink()
    deploy(root, "B", one="second")
    generation.put_back(root, generation.chosen(root, on_request=False))
    assert [path.read_text() for path in (config, unit, key)] == ["on", "on", "key"]
    assert not list((root / generation.KEPT).rglob("tls.pem"))


@pytest.mark.parametrize("name", ["qwen-prometheus.service", "qwen-card-metrics.service"])
def test_what_watches_is_no_part_of_what_serves(root: Path, name: str) -> None:
    generation.save(root)
    watching = root / "etc/systemd/system" / name
    watching.write_text("on")
    assert generation.save(root) is False
    deploy(root, "B", one="second")
    generation.put_back(root, generation.chosen(root, on_request=False))
    assert watching.read_text() == "on"


def test_a_kept_generation_is_not_kept_twice(root: Path) -> None:
    assert [generation.save(root) for _ in range(3)] == [True, False, False]
    assert generation.known(root, "before") is None


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every engine answers after a start."""
    monkeypatch.setattr(generation, "start", lambda: True)


@pytest.mark.usefixtures("starts")
def test_what_was_rolled_back_by_itself_is_remembered_until_it_is_tried_again(root: Path) -> None:
    generation.attempt(root, "first-deploy")
    generation.save(root)
    generation.attempt(root, "second-deploy")
    deploy(root, "B", one="second")
    assert generation.restore(root, False, "it failed verification") == 0
    failed = generation.failed(root)
    assert (failed["digest"], failed["release"]) == ("second-deploy", "B")
    assert failed["reason"] == "it failed verification"
    assert generation.attempted(root) == "first-deploy"
    generation.save(root)
    assert generation.failed(root) == failed
    generation.attempt(root, "another")
    assert generation.failed(root) == failed
    generation.attempt(root, "second-deploy")
    assert generation.failed(root) == {}


@pytest.mark.usefixtures("starts")
@pytest.mark.parametrize("named", [True, False])
def test_a_rollback_on_request_or_without_an_attempt_blames_nothing(root: Path, named: bool) -> None:
    generation.save(root)
    if named:
        generation.attempt(root, "second-deploy")
    deploy(root, "B", one="second")
    generation.save(root)
    generation.restore(root, on_request=named, because="")
    assert generation.failed(root) == {}


def test_what_serves_after_all_no_longer_counts_as_failed(root: Path) -> None:
    generation.note(root, "failed.json", '{"digest": "x"}')
    generation.note(root, "attempt", "x")
    generation.save(root)
    assert generation.failed(root) == {}


@pytest.mark.usefixtures("starts")
def test_a_failed_change_of_the_release_directory_goes_back_to_the_former_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = root / generation.ENGINE_UNIT
    unit.write_text("ExecStart=/opt/qwen/current/venv/bin/python engine.py\n")
    generation.save(root)
    home = root / "data/qwen/releases/C"
    home.mkdir(parents=True)
    (home.parents[1] / "current").symlink_to("releases/C")
    unit.write_text("ExecStart=/data/qwen/current/venv/bin/python engine.py\n")
    monkeypatch.setattr(generation, "CURRENT", Path("/data/qwen/current"))
    assert generation.release(root) == "C"
    assert generation.restore(root, on_request=False, because="") == 0
    assert (generation.current(root), generation.release(root)) == (root / "opt/qwen/current", "A")


def test_rights_are_kept(root: Path) -> None:
    file = root / "etc/qwen/engines/one.yaml"
    file.chmod(0o640)
    generation.save(root)
    file.unlink()
    generation.put_back(root, "good")
    assert file.stat().st_mode & 0o777 == 0o640


def test_secrets_are_not_copied(root: Path) -> None:
    (root / "etc/qwen/secrets").mkdir()
    (root / "etc/qwen/secrets/api_key").write_text("secret")
    generation.save(root)
    assert not any("secret" in path.name or "api_key" in path.name for path in (root / generation.KEPT).rglob("*"))


@pytest.mark.parametrize("on_request", [False, True])
def test_without_a_former_generation_nothing_is_touched(root: Path, on_request: bool) -> None:
    if on_request:
        generation.save(root)
    with pytest.raises(NothingToRestoreError, match="no former generation"):
        generation.chosen(root, on_request)


def test_a_release_that_was_pruned_is_named(root: Path) -> None:
    generation.save(root)
    deploy(root, "B", one="second")
    (root / "opt/qwen/releases/A/release.json").unlink()
    with pytest.raises(NothingToRestoreError, match="former release A is gone: raise qwen_keep_releases"):
        generation.chosen(root, on_request=False)


def test_a_save_that_was_cut_off_leaves_the_last_good_one(root: Path) -> None:
    generation.save(root)
    deploy(root, "B", one="second")
    (root / generation.KEPT / "fresh/files").mkdir(parents=True)
    assert generation.chosen(root, on_request=False) == "good"
    (root / generation.KEPT / "good").rename(root / generation.KEPT / "before")
    assert generation.chosen(root, on_request=False) == "before"
    assert generation.save(root) is True
