"""The programs that run on a host: what they do with files, and the words they have for failures."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from qwenlab.remote import build_release, engine

PROGRAM = Path(str(files("qwenlab.remote").joinpath("fetch_uv.py")))


def wheel(version: str) -> bytes:
    """A wheel like uv's."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"uv-{version}.data/scripts/uv", "#!/bin/sh\necho uv\n")
    return buffer.getvalue()


@contextmanager
def index(pages: dict[str, bytes]) -> Iterator[str]:
    """A package index that asks for the credentials me:secret."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers.get("Authorization") == "Basic bWU6c2VjcmV0"
            body = pages.get(self.path) if allowed else b""
            self.send_response(200 if allowed and body else 404 if allowed else 401)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://me:secret@127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        server.server_close()


def fetch_uv(job: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run the program as the host does."""
    return subprocess.run(
        [sys.executable, str(PROGRAM)], input=json.dumps(job), text=True, capture_output=True, check=False
    )


def uv_job(target: Path, content: bytes, **more: Any) -> dict[str, Any]:
    """A job for uv 1.2.3."""
    return {
        "version": "1.2.3",
        "file": "uv-1.2.3-py3-none-x.whl",
        "sha256": hashlib.sha256(content).hexdigest(),
        "index": None,
        "folder": None,
        "target": str(target),
        **more,
    }


def test_uv_comes_from_the_index_and_replaces_an_older_one(tmp_path: Path) -> None:
    content, target = wheel("1.2.3"), tmp_path / "uv"
    target.write_text("old")
    page = b'<a href="/files/uv-1.2.2-py3-none-x.whl">a</a><a href="/files/uv-1.2.3-py3-none-x.whl#sha256=0">b</a>'
    with index({"/simple/uv/": page, "/files/uv-1.2.3-py3-none-x.whl": content}) as url:
        done = fetch_uv(uv_job(target, content, index=url))
    assert done.returncode == 0, done.stderr
    assert target.read_text().startswith("#!/bin/sh")
    assert target.stat().st_mode & 0o777 == 0o755
    assert list(tmp_path.iterdir()) == [target]


def test_uv_comes_from_a_folder_before_any_index(tmp_path: Path) -> None:
    content = wheel("1.2.3")
    (tmp_path / "uv-1.2.3-py3-none-x.whl").write_bytes(content)
    done = fetch_uv(uv_job(tmp_path / "uv", content, folder=str(tmp_path), index="http://127.0.0.1:1/simple"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "uv").exists()


def test_another_file_than_the_pinned_one_is_never_put_in_place(tmp_path: Path) -> None:
    (tmp_path / "uv-1.2.3-py3-none-x.whl").write_bytes(wheel("6.6.6"))
    target = tmp_path / "bin" / "uv"
    target.parent.mkdir()
    done = fetch_uv(uv_job(target, wheel("1.2.3"), folder=str(tmp_path)))
    assert done.returncode == 1
    assert "pinned is" in done.stderr
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"index": "http://me:secret@127.0.0.1:1/simple"},
            ["package index http://127.0.0.1:1/simple", "qwen_index_url"],
        ),
        ({"folder": "/nowhere"}, ["the folder /nowhere", "uv-1.2.3-py3-none-x.whl"]),
    ],
)
def test_an_unreachable_source_is_named_without_its_credentials(
    tmp_path: Path, more: dict[str, Any], words: list[str]
) -> None:
    done = fetch_uv(uv_job(tmp_path / "uv", b"", **more))
    assert done.returncode == 1
    assert all(word in done.stderr for word in words), done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            "error: Failed to read `--find-links` URL: https://host/whl/torch/\n error sending request",
            "qwen_find_links",
        ),
        ("error: No space left on device (os error 28)", "disk is full"),
        ("Hash mismatch for `numpy==2`", "not the one that was pinned"),
        ("client error (Connect): tcp connect error: Connection refused", "cannot be reached"),
        ("invalid peer certificate: UnknownIssuer", "qwen_extra_ca_certificates"),
        ("401 Unauthorized", "credentials"),
        ("No solution found when resolving dependencies", "in none of the sources"),
        ("a\nb\nc\nsomething strange", "b / c / something strange"),
    ],
)
def test_each_failure_of_a_build_says_what_to_do(output: str, words: str) -> None:
    assert words in build_release.advise(output)


def test_remains_of_interrupted_builds_are_removed_and_whole_releases_stay(tmp_path: Path) -> None:
    interpreter, mark = "venv/bin/python", "release.json"
    releases = {
        "a": (interpreter, mark),
        "b.partial": (interpreter,),
        "c": (interpreter,),
        "d.partial": (interpreter, mark),
        "e": (mark,),
    }
    for name, parts in releases.items():
        (tmp_path / name / "venv/bin").mkdir(parents=True)
        for file in parts:
            (tmp_path / name / file).touch(mode=0o755)
    (tmp_path / ".lock").touch()
    build_release.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "a"]


def test_a_release_that_does_not_fit_is_refused_before_it_is_begun(tmp_path: Path) -> None:
    job = {"need_gib": 99_999, "environment": {}}
    with pytest.raises(build_release.StepError, match=r"GiB free and the release takes 99999"):
        build_release.build(job, tmp_path / "x.partial", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_the_alias_is_a_distribution_that_python_finds(tmp_path: Path) -> None:
    build_release.write_alias(tmp_path, "vllm", "0.32.0+cpu")
    program = "import importlib.metadata as m; print(m.version('vllm'))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(tmp_path)}, text=True, capture_output=True, check=True
    )
    assert done.stdout.strip() == "0.32.0+cpu"


def test_the_key_is_read_from_the_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.read_credential("api_key") is None
    (tmp_path / "api_key").write_text("key\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert engine.read_credential("api_key") == "key"
    assert engine.read_credential("other") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("model: [", "cannot be read"),
        ("", "names no model"),
        ("port: 8000\n", "names no model"),
        ("- model\n", "names no model"),
    ],
)
def test_settings_that_are_none_refuse_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, words: str
) -> None:
    config = tmp_path / "cpu.yaml"
    if text is not None:
        config.write_text(text)
    with pytest.raises(SystemExit) as left:
        engine.load(config)
    said = capsys.readouterr().out
    assert left.value.code == 78
    assert said.startswith("refused: ")
    assert words in said
    assert len(said.splitlines()) == 1


def test_a_probe_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is a process of its own, and the start would wait for it to its limit."""

    def broken(*_: object) -> None:
        raise OSError("no clock")

    monkeypatch.setattr(engine, "probe", broken)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(30)
        engine.start_probe(0, {}, None)
        assert (
            systemd.recv(500).decode() == "STATUS=the probe failed (OSError('no clock')): this engine will be restarted"
        )
    assert "OSError: no clock" in capfd.readouterr().err


@pytest.mark.parametrize("key", ["", "missing"])
def test_an_engine_never_starts_with_an_empty_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    (tmp_path / "api_key").write_text(key)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(engine, "RUN", tmp_path)
    monkeypatch.setattr(sys, "argv", ["engine.py", str(tmp_path / "cpu.yaml")])
    with pytest.raises(SystemExit) as left:
        engine.main()
    assert left.value.code == 78
    assert "answers everybody" in capsys.readouterr().out
