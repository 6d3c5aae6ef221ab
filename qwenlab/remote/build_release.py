#!/usr/bin/env python3
"""build_release.py < JOB: build one engine release on this host, whole or not at all.

The job is JSON on stdin (see `qwenlab.operations.engine.build_job`). The release grows below `<id>.partial` under a
lock, is synced to disk and renamed, so that neither a crash nor a second deploy ever leaves half a release under its
name. Whatever is left of an interrupted build is removed first; uv's cache keeps what was already fetched.
Exit codes: 0 built or already there, 1 a step failed (the last lines say which and what to do).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ADVICE = (
    # first words of uv's output that match -> what the owner of the host can do
    (("No space left on device", "os error 28"), "the disk is full: free room and deploy again"),
    (
        ("Hash mismatch", "do not match", "Hashes are required"),
        "a file is not the one that was pinned: check qwen_index_url, qwen_wheel_directory and proxies in between",
    ),
    (
        ("invalid peer certificate", "UnknownIssuer", "certificate"),
        "the index's TLS certificate is not trusted here: name its authority in qwen_extra_ca_certificates",
    ),
    (
        ("401 Unauthorized", "403 Forbidden"),
        "the package index refuses this host: check the credentials in qwen_index_url",
    ),
    (
        ("Failed to read `--find-links`", "Failed to read --find-links"),
        "the page of wheels cannot be read from this host: name another with qwen_find_links, or a folder of wheels on "
        "the host with qwen_wheel_directory (the cpu engine's torch is not on PyPI)",
    ),
    (
        (
            "error sending request",
            "dns error",
            "Connection refused",
            "timed out",
            "client error",
            "502 ",
            "503 ",
            "Request failed",
            "Failed to fetch",
        ),
        "the package index cannot be reached from this host: check qwen_index_url, qwen_extra_index_urls and "
        "qwen_http(s)_proxy, then deploy again",
    ),
    (
        ("No interpreter found", "No solution found", "not found in the package registry", "no wheels"),
        "a pinned file is in none of the sources: check qwen_index_url, qwen_find_links, qwen_wheel_directory and "
        "qwen_python",
    ),
)


class StepError(Exception):
    """A step failed; the text says what to do."""


def main() -> int:
    """Read the job, build, report."""
    job: dict[str, Any] = json.load(sys.stdin)
    releases = Path(job["directory"])
    final = releases / job["id"]
    releases.mkdir(parents=True, exist_ok=True)
    try:
        with lock(releases / ".lock"):
            if whole(final):
                say(f"release {job['id']} is already there")
                return 0
            sweep(releases)
            build(job, final.with_name(f"{final.name}.partial"), final)
    except StepError as error:
        print(f"release {job['id']} was not built: {error}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """One build at a time; a second deploy waits for the first."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build runs on this host; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def whole(release: Path) -> bool:
    """Whether a release has its mark and an interpreter that is there: a link, whose target may have been removed."""
    return (release / "release.json").exists() and os.access(release / "venv/bin/python", os.X_OK)


def sweep(releases: Path) -> None:
    """Remove what interrupted builds left, and releases without their mark or interpreter, which nothing can run."""
    for path in releases.iterdir():
        if path.is_dir() and (path.name.endswith(".partial") or not whole(path)):
            say(f"removing what is no whole release: {path.name}")
            shutil.rmtree(path)


def build(job: dict[str, Any], partial: Path, final: Path) -> None:
    """Fill `partial`, then give it its name."""
    free = shutil.disk_usage(partial.parent).free / 2**30
    if free < job["need_gib"]:
        raise StepError(
            f"{partial.parent} has {free:.1f} GiB free and the release takes {job['need_gib']:g}: "
            "free room, or lower qwen_keep_releases"
        )
    started = time.monotonic()
    partial.mkdir(mode=0o755)
    environment = {**os.environ, **job["environment"]}
    venv = partial / "venv"
    # relocatable: the folder gets its name last
    options = ["--relocatable", "--no-project", *(["--system-site-packages"] if job["system_packages"] else [])]
    uv(["venv", *options, "--python", job["python"], str(venv)], environment, "make the venv")
    lock_file = partial / "requirements.txt"
    lock_file.write_text(job["lock"])
    sources = [f"--find-links={folder}" for folder in job["find_links"]]
    sources += ["--no-index"] if job["offline"] else []
    install = ["pip", "sync", "--python", str(venv / "bin" / "python"), "--require-hashes", *sources, str(lock_file)]
    uv(install, environment, "install the pinned packages")
    site = next((venv / "lib").glob("python3*/site-packages"))
    if job["alias"]:
        write_alias(site, job["alias"]["name"], job["alias"]["version"])
    for step in job["steps"]:
        run_step(step, venv, partial, environment)
    compile_all(venv, site, environment)
    check_import(venv, job["version"], environment)
    (partial / "release.json").write_text(json.dumps(job["record"], indent=2) + "\n")
    os.sync()  # a power cut must not leave a named release with empty files
    partial.rename(final)
    descriptor = os.open(final.parent, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    say(f"release {job['id']} built in {time.monotonic() - started:.0f} s")


def uv(arguments: list[str], environment: dict[str, str], purpose: str) -> None:
    """Run uv; its output is shown, and its failure becomes words for the owner."""
    run(["/usr/local/bin/uv", "--no-progress", *arguments], environment, purpose)


def run(command: list[str], environment: dict[str, str], purpose: str, cwd: Path | None = None) -> None:
    """Run one command with its output passed on line by line.

    Raises:
        StepError: it exited with another code than 0.
    """
    say(purpose)
    lines: list[str] = []
    with subprocess.Popen(
        command, env=environment, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode:
        output = "".join(lines)
        raise StepError(f"could not {purpose} (exit code {process.returncode}). {advise(output)}")


def advise(output: str) -> str:
    """What to do about a failed command, from its output; else its last words."""
    for signs, advice in ADVICE:
        if any(sign in output for sign in signs):
            return advice[0].upper() + advice[1:] + "."
    return " / ".join(output.strip().splitlines()[-3:])


def write_alias(site: Path, name: str, version: str) -> None:
    """A distribution of that name without files: `importlib.metadata.version(name)` finds it."""
    folder = site / f"{name}-{version.replace('-', '_')}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "INSTALLER").write_text("qwenlab\n")
    (folder / "RECORD").write_text("".join(f"{folder.name}/{part},,\n" for part in ("METADATA", "INSTALLER", "RECORD")))


def run_step(step: dict[str, Any], venv: Path, partial: Path, environment: dict[str, str]) -> None:
    """One further step (the patch series): a program with its files, run by the release's interpreter.

    Packages may share their files with uv's cache by hard links: a step writes a new file and renames it, it never
    writes in place.
    """
    folder = partial / "steps" / step["name"]
    folder.mkdir(parents=True)
    for name, content in step["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    program = folder / "program.py"
    program.write_text(step["program"])
    run([str(venv / "bin" / "python"), str(program), *step["arguments"]], environment, step["purpose"], folder)


def compile_all(venv: Path, site: Path, environment: dict[str, str]) -> None:
    """Byte-compile here: the service sees /opt read-only and would compile at every start."""
    say("compile the Python files")
    python = str(venv / "bin" / "python")
    # packages ship files for other Pythons that do not compile; the import check below is what counts
    subprocess.run([python, "-m", "compileall", "-q", "-q", "-j", "0", str(site)], env=environment, check=False)


def check_import(venv: Path, version: str, environment: dict[str, str]) -> None:
    """The release must import and be the version that was asked for."""
    program = "import importlib.metadata as m, vllm, torch; print(m.version('vllm')); import vllm.entrypoints.cli.main"
    result = subprocess.run(
        [str(venv / "bin" / "python"), "-c", program], env=environment, text=True, capture_output=True, check=False
    )
    found = result.stdout.strip().splitlines()[:1]
    if result.returncode or not found or not found[0].startswith(version):
        last = " / ".join(result.stderr.strip().splitlines()[-3:])
        raise StepError(f"the installed vLLM does not import as {version}: {found or ''} {last}")


def say(text: str) -> None:
    """Progress, one line."""
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
