#!/usr/bin/env python3
"""generation.py save|state|attempt|restore: what this host served when it was last known to be good.

A generation is the release that `current` points to and every file that the engines are started with; secrets and
checkpoints stay where they are. `save` keeps the present one (called when every engine answers, and after
verification where that is on) and the one before it. `restore` brings the last good one back and starts it; with
--on-request, when the last good one is what is there now, the one before. `state` prints `saved` when the present one
is the last good one.
Before a deploy puts its files in place it names them by a digest of its own (`attempt DIGEST`). A `restore` that nobody
asked for keeps that digest as failed, with the reason, until the same is attempted again on purpose or serves after
all; `attempt` alone prints both, so that the next deploy does not run into the same wall.
Exit codes: 0 done and serving, 1 not (the last lines say why). Standard library only, and no file beside this one:
a deploy that was cut off must not take away the way back.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

KEPT = Path("var/lib/qwenlab/generations")
FOLDERS = ("etc/qwen/engines",)
FILES = ("etc/qwen/plan.json", "etc/qwen/inventory.json", "etc/qwen/calibration.json", "etc/qwen/gateway/haproxy.cfg")
UNITS = Path("etc/systemd/system")
APART = frozenset({"qwen-prometheus.service", "qwen-card-metrics.service"})  # watch; what serves does not need them
ENGINE_UNIT = UNITS / "qwen-engine@.service"
CURRENT = Path("@RELEASES@/current")
PLACE = re.compile(r"^ExecStart=(/\S*/current)/venv/", re.MULTILINE)


class NothingToRestoreError(Exception):
    """There is no generation to go back to; the text says why."""


def members(root: Path) -> list[Path]:
    """Every file of the present generation, relative to `root`."""
    found = [root / name for name in FILES if (root / name).is_file()]
    for folder in FOLDERS:
        found += [path for path in (root / folder).rglob("*") if path.is_file()]
    for unit in (one for one in (root / UNITS).glob("qwen*") if one.name not in APART):
        found += [unit] if unit.is_file() else [path for path in unit.rglob("*") if path.is_file()]
    return sorted(path.relative_to(root) for path in found)


def digest(root: Path, paths: list[Path], release: str) -> str:
    """One digest over a release and files."""
    total = hashlib.sha256(release.encode())
    for path in paths:
        # the inventory holds passing figures (free memory) and is written together with the plan
        content = b"" if path.name == "inventory.json" else (root / path).read_bytes()
        total.update(b"\0".join((str(path).encode(), hashlib.sha256(content).digest())))
    return total.hexdigest()


def current(root: Path) -> Path:
    """The link to the release that the engines' unit starts; the settings' own place without a unit."""
    try:
        named = PLACE.search((root / ENGINE_UNIT).read_text())
    except OSError:
        named = None
    return root / Path(named.group(1) if named else CURRENT).relative_to("/")


def release(root: Path) -> str:
    """Name of the current release; empty without one."""
    link = current(root)
    return os.readlink(link).rsplit("/", 1)[-1] if link.is_symlink() else ""


def present(root: Path) -> str:
    """Digest of what is there now."""
    return digest(root, members(root), release(root))


def known(root: Path, name: str) -> dict[str, str] | None:
    """The mark of a kept generation; None when there is none."""
    try:
        mark: dict[str, str] = json.loads((root / KEPT / name / "generation.json").read_text())
    except (OSError, ValueError):
        return None
    return mark


def save(root: Path) -> bool:
    """Keep the present generation as `good`; False when it is kept already."""
    directory = "/" + str(current(root).parent.relative_to(root))
    mark = {"digest": present(root), "release": release(root), "directory": directory, "attempt": attempted(root)}
    good = known(root, "good")
    forget(root, attempted(root))
    if good is not None and good["digest"] == mark["digest"]:
        return False
    kept = root / KEPT
    kept.mkdir(parents=True, exist_ok=True)
    kept.chmod(0o700)
    fresh = kept / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    for path in members(root):
        place = fresh / "files" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / path, place)
        state = (root / path).stat()
        os.chown(place, state.st_uid, state.st_gid)
    (fresh / "generation.json").write_text(json.dumps(mark))
    os.sync()
    if good is not None:
        shutil.rmtree(kept / "before", ignore_errors=True)
        (kept / "good").rename(kept / "before")
    else:
        shutil.rmtree(kept / "good", ignore_errors=True)
    fresh.rename(kept / "good")
    return True


def chosen(root: Path, on_request: bool) -> str:
    """Which generation to go back to. Raises NothingToRestoreError."""
    good = known(root, "good")
    # without `good` a save was cut off between its two renames
    name = "before" if good is None or (on_request and good["digest"] == present(root)) else "good"
    mark = known(root, name)
    if mark is None:
        raise NothingToRestoreError("there is no former generation on this host: nothing served well before")
    home = place_of(root, mark) / "releases" / mark["release"]
    if not (home / "release.json").exists():
        raise NothingToRestoreError(f"the former release {mark['release']} is gone: raise qwen_keep_releases")
    return name


def place_of(root: Path, mark: dict[str, str]) -> Path:
    """The directory of releases that a kept generation was served from."""
    return root / Path(mark.get("directory") or CURRENT.parent).relative_to("/")


def attempted(root: Path) -> str:
    """What the last deploy called the files that it put in place; empty when none said."""
    try:
        return (root / KEPT / "attempt").read_text().strip()
    except OSError:
        return ""


def note(root: Path, name: str, text: str) -> None:
    """Write a small file of the store, whole or not at all."""
    kept = root / KEPT
    kept.mkdir(parents=True, exist_ok=True)
    kept.chmod(0o700)
    fresh = kept / f"{name}.new"
    fresh.write_text(text)
    fresh.rename(kept / name)


def failed(root: Path) -> dict[str, str]:
    """The attempt that was rolled back last: digest, release, reason, at; empty when there is none."""
    try:
        said = json.loads((root / KEPT / "failed.json").read_text())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def attempt(root: Path, digest: str) -> None:
    """A deploy is about to put files in place; that these failed before no longer counts."""
    forget(root, digest)
    note(root, "attempt", f"{digest}\n")


def forget(root: Path, digest: str) -> None:
    """Let an attempt no longer count as failed."""
    if failed(root).get("digest") == digest:
        (root / KEPT / "failed.json").unlink()


def put_back(root: Path, name: str) -> None:
    """Let files and `current` be those of a kept generation."""
    saved = root / KEPT / name / "files"
    wanted = {path.relative_to(saved) for path in saved.rglob("*") if path.is_file()}
    for path in members(root):
        if path not in wanted:
            (root / path).unlink()
    for path in wanted:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_name(f"{place.name}.new")
        shutil.copy2(saved / path, fresh)
        state = (saved / path).stat()
        os.chown(fresh, state.st_uid, state.st_gid)
        fresh.rename(place)
    mark = known(root, name) or {}
    link = place_of(root, mark) / "current"
    fresh_link = link.with_name(".current.new")
    fresh_link.unlink(missing_ok=True)
    fresh_link.symlink_to(f"releases/{mark['release']}")
    fresh_link.rename(link)
    os.sync()


def start() -> bool:
    """Start exactly the engines whose files lie there; whether all answer."""

    def systemctl(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)

    names = [path.name.removesuffix(".yaml") for path in Path("/etc/qwen/engines").glob("*.yaml")]
    units = [f"qwen-engine@{name}.service" for name in sorted(names)]
    systemctl("daemon-reload")
    listed = systemctl("list-units", "--all", "--plain", "--no-legend", "qwen-engine@*.service").stdout
    for line in listed.splitlines():
        if line.split()[0] not in units:
            systemctl("stop", line.split()[0])
            systemctl("reset-failed", line.split()[0])
    systemctl("reset-failed", *units)
    # asked of the engines themselves: starting the umbrella while it runs says nothing
    up = systemctl("restart", *units).returncode == 0
    gateway = "qwen-gateway.service"
    if (Path("/") / UNITS / gateway).exists():
        systemctl("enable", gateway)
        systemctl("restart", gateway)
    else:
        systemctl("stop", gateway)
        (Path("/") / UNITS / "multi-user.target.wants" / gateway).unlink(missing_ok=True)
    return systemctl("start", "qwen.service").returncode == 0 and up


def options_of(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="What this host served when it was last known to be good.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("save")
    verbs.add_parser("state")
    verbs.add_parser("attempt").add_argument("digest", nargs="?")
    back = verbs.add_parser("restore")
    back.add_argument("--on-request", action="store_true")
    back.add_argument("--because", default="it did not start", help="why the present one is given up")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run one verb."""
    options = options_of(argv)
    root = Path("/")
    if options.verb == "save":
        save(root)
    elif options.verb == "state":
        good = known(root, "good")
        print(release(root))
        print("saved" if good is not None and good["digest"] == present(root) else "differs")
    elif options.verb == "attempt" and options.digest:
        attempt(root, options.digest)
    elif options.verb == "attempt":
        print(json.dumps({"attempt": attempted(root), "failed": failed(root)}))
    else:
        return restore(root, options.on_request, options.because)
    return 0


def restore(root: Path, on_request: bool, because: str) -> int:
    """Bring a generation back and start it; the exit code."""
    try:
        name = chosen(root, on_request)
    except NothingToRestoreError as error:
        print(f"not rolled back: {error}", file=sys.stderr)
        return 1
    if not on_request and attempted(root):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        given_up = {"digest": attempted(root), "release": release(root), "reason": because, "at": at}
        note(root, "failed.json", json.dumps(given_up))
    put_back(root, name)
    mark = known(root, name) or {}
    if not start():
        words = "and it does not start either: systemctl status qwen"
        print(f"rolled back to release {mark.get('release')}, {words}", file=sys.stderr)
        return 1
    # what serves again is what an earlier deploy attempted
    note(root, "attempt", mark.get("attempt", ""))
    save(root)
    print(f"rolled back: release {mark.get('release')} and its plan serve again", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
