"""The demo: a bare host booted here, deployed by the real command, asked from outside, deployed again, removed.

    script/demo             all of it; the host is removed at the end
    script/demo --keep      leaves the host and says how to reach it
    script/demo --destroy   removes a host that was kept

`inventory/demo.py` learns the host from the file that this module writes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.lab import boot
from tests.lab.deploying import API_KEY, ROOT, ask, sources
from tests.lab.host import Host, HostSpec
from tests.lab.lab import Lab, claim, fill, removed_after
from tests.lab.registry import records
from tests.lab.removal import destroy
from tests.lab.shell import LabError

NOTE = "demo"
PYINFRA = [str(Path(sys.executable).with_name("pyinfra")), "inventory/demo.py", "deploy.py", "-y"]


def state_file() -> Path:
    """The file that `inventory/demo.py` reads: `$QWENLAB_DEMO` or ~/.cache/qwenlab/demo.json."""
    return Path(os.environ.get("QWENLAB_DEMO", "~/.cache/qwenlab/demo.json")).expanduser()


class Progress:
    """One line a step, with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"\n[{time.monotonic() - self._began:5.0f} s] {text}", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="script/demo", description="From a bare host to an answered request, here.")
    parser.add_argument("--keep", action="store_true", help="leave the host running and say how to reach it")
    parser.add_argument("--destroy", action="store_true", help="remove a host that --keep left")
    parser.add_argument("--release", default="bookworm", help="Debian release of the host (default: %(default)s)")
    options = parser.parse_args(argv)
    try:
        if options.destroy:
            return _destroy()
        _destroy_kept()
        return _demo(HostSpec("demo", release=options.release), keep=options.keep)
    except LabError as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; the host is removed", file=sys.stderr)
        return 130


def _demo(spec: HostSpec, *, keep: bool) -> int:
    say = Progress()
    record = claim(keep=False)
    with removed_after(record) as lifetime:
        if keep:
            boot.keep_after_exit()
        say(f"booting a bare Debian host ({spec.release}; its image is built on the first run)")
        lab = fill(record, [spec])
        host: Host = lab[0]
        name = host.ssh_run(". /etc/os-release; echo $PRETTY_NAME").stdout.strip()
        say(
            f"booted: {name} at {host.address}, systemd is {host.ssh_run('systemctl is-system-running').stdout.strip()}"
        )
        with sources(lab.gateway, lab.directory) as origin:
            _write_state(host, origin.settings())
            say("deploying: pyinfra inventory/demo.py deploy.py -y")
            if subprocess.run(PYINFRA, cwd=ROOT, stdin=subprocess.DEVNULL).returncode != 0:
                raise LabError("the deploy failed; the lines above say at which step and why")
            _answer(host, say)
            say("deploying again: pyinfra inventory/demo.py deploy.py -y --json")
            changed, unchanged = _converge_again()
            print(f"  changed operations: {len(changed)}, unchanged: {unchanged}", flush=True)
            if changed:
                raise LabError(f"the second run should have changed nothing, but changed: {', '.join(changed)}")
        if keep:
            lifetime.keep(NOTE)
            _say_how_to_reach(lab, say)
        else:
            state_file().unlink(missing_ok=True)
            say("done; removing the host")
    return 0


def _write_state(host: Host, settings: dict[str, Any]) -> None:
    path = state_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    data = {**host.pyinfra_data("admin"), **settings}
    path.write_text(json.dumps({"hosts": [{"name": host.name, "data": data}]}, indent=1))


def _answer(host: Host, say: Progress) -> None:
    say(f"asking from outside: POST http://{host.address}:8000/v1/chat/completions")
    status, answer = ask(host)
    if status != 200:
        raise LabError(
            f"the engine answered HTTP {status}; its journal ends:\n{host.journal('qwen-engine@cpu')[-3000:]}"
        )
    text = answer["choices"][0]["message"]["content"]
    print(f"  HTTP {status} from {answer.get('system_fingerprint', 'an unnamed engine')} (CPU): {text!r}", flush=True)
    print("  (the checkpoint is tiny and random: real tokens, no sense)", flush=True)
    active = host.ssh_run("systemctl is-active qwen", check=False).stdout.strip()
    say(f"systemctl is-active qwen: {active}")
    if active != "active":
        raise LabError("qwen.service should be active")


def _converge_again() -> tuple[list[str], int]:
    done = subprocess.run(
        [*PYINFRA, "--json"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0 or not done.stdout.strip():
        raise LabError(f"the second deploy failed:\n{done.stderr[-3000:]}")
    operations = json.loads(done.stdout)["results"]["operations"]
    changed = [str(one["name"]) for one in operations if one["success"]]
    return changed, sum(bool(one["no_change"]) for one in operations)


def _say_how_to_reach(lab: Lab, say: Progress) -> None:
    host: Host = lab[0]
    say("done; the host stays until script/demo --destroy")
    print(f"  log in:  {' '.join(host.ssh_command())}")
    print("  there:   systemctl status|stop|start|restart qwen")
    print("  plays:   .venv/bin/pyinfra inventory/demo.py plays/status.py -y  (and the others of docs/plays.md)")
    print(
        f"  ask:     curl http://{host.address}:8000/v1/chat/completions -H 'Authorization: Bearer {API_KEY}' "
        "-H 'Content-Type: application/json' "
        """-d '{"model": "qwen", "messages": [{"role": "user", "content": "Hello"}]}'""",
        flush=True,
    )


def _destroy_kept() -> list[int]:
    kept = [record.number for record in records() if NOTE in record.notes]
    return [number for one in kept for number in destroy(one)]


def _destroy() -> int:
    gone = _destroy_kept()
    state_file().unlink(missing_ok=True)
    print("demo: the host is removed" if gone else "demo: there is no kept host")
    return 0


if __name__ == "__main__":
    sys.exit(main())
