"""How fast checkpoints arrive and are verified, on loopback:  python -m bench.checkpoint [--gib 1] [--rounds 3] [--xet]

Two figures, each a ratio on the same machine in the same minute, so that the machine's speed cancels out:

* our fetch (verified, manifest written) against `hf download` of the same files, wall time, alternating;
* bytes read from the disk's files during our fetch against bytes written: a second read would show as 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REPO = "bench/model"
SERVER = """
import sys
from pathlib import Path
from tests.lab.servers.hub import Hub
with Hub().running() as hub:
    hub.xet = sys.argv[2] == "xet"
    print(hub.endpoint, hub.add("bench/model", Path(sys.argv[1])), flush=True)
    sys.stdin.read()
"""


def checkpoint(directory: Path, gib: float, files: int) -> Path:
    """Random files: `files` shards, `gib` GiB in all."""
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    for number in range(files):
        with (directory / f"model-{number}.safetensors").open("wb") as handle:
            left = int(gib * 2**30 / files)
            while left > 0:
                left -= handle.write(os.urandom(min(left, 8 << 20)))
    return directory


def run(command: list[str], environment: dict[str, str]) -> str:
    """What a command prints; the bench ends with its words when it fails."""
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed ({done.returncode}): {done.stderr}")
    return done.stdout


def ours(endpoint: str, commit: str, root: Path) -> tuple[float, float]:
    """Seconds of a fetch, and bytes that it read by read(2) per byte that it wrote."""
    job = root / "job.json"
    target = root / "models" / REPO / commit
    job.write_text(
        json.dumps(
            {
                "repo": REPO,
                "revision": commit,
                "directory": str(target),
                "models": str(root / "models"),
                "source": "hub",
                "endpoint": endpoint,
                "status": str(root / "status.json"),
            }
        )
    )
    program = (
        "import os, sys; from qwenlab.remote.fetch_checkpoint import main; code = main(sys.argv[1:]);"
        "print('IO', open('/proc/self/io').read().replace(chr(10), ' ')); sys.exit(code)"
    )
    begin = time.perf_counter()
    said = run([sys.executable, "-c", program, str(job)], dict(os.environ))
    seconds = time.perf_counter() - begin
    words = said[said.index("IO ") :].split()
    counted = {words[at].rstrip(":"): int(words[at + 1]) for at in range(1, len(words) - 1, 2)}
    # sockets are read by recv(2), which is not counted; what is, is files
    return seconds, counted["rchar"] / counted["wchar"]


def hf_download(endpoint: str, commit: str, root: Path) -> float:
    """Seconds of `hf download` of the same files."""
    command = [str(Path(sys.executable).with_name("hf")), "download", REPO, "--revision", commit]
    environment = {
        **os.environ,
        "HF_ENDPOINT": endpoint,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HOME": str(root / "home"),
    }
    begin = time.perf_counter()
    run([*command, "--local-dir", str(root / "hf")], environment)
    return time.perf_counter() - begin


def main() -> int:
    """Run and print; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--xet", action="store_true", help="the hub has the files in Xet storage: both fetch from there"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qwenlab-bench-") as name:
        root = Path(name)
        source = checkpoint(root / "source", options.gib, options.files)
        with subprocess.Popen(
            [sys.executable, "-c", SERVER, str(source), "xet" if options.xet else "plain"],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as server:
            assert server.stdout is not None
            assert server.stdin is not None
            endpoint, commit = server.stdout.readline().split()
            ratios, reads = [], []
            for number in range(options.rounds):
                mine, theirs = root / f"ours-{number}", root / f"theirs-{number}"
                mine.mkdir()
                theirs.mkdir()
                seconds, read = ours(endpoint, commit, mine)
                other = hf_download(endpoint, commit, theirs)
                ratios.append(other / seconds)
                reads.append(read)
                print(f"round {number + 1}: ours {seconds:.2f} s, hf download {other:.2f} s, read/written {read:.3f}")
                subprocess.run(["rm", "-rf", str(mine), str(theirs)], check=True)
            server.stdin.close()
    speed, read = statistics.median(ratios), max(reads)
    print(f"our speed over hf download's: {speed:.2f} (at least 0.9)")
    print(f"bytes read from files per byte written: {read:.3f} (below 0.1: nothing just written is read again)")
    return 0 if speed >= 0.9 and read < 0.1 else 1


if __name__ == "__main__":
    sys.exit(main())
