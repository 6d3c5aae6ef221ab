"""A bundle is cut, carried and put together again: whole, or refused by name with nothing left behind."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from qwenlab.bundle import build, fetch, pieces
from qwenlab.bundle.cli import main
from qwenlab.bundle.manifest import BundleError, read, verify
from qwenlab.bundle.selection import Pin, Selection

MIB = 1 << 20


def make_wheel(folder: Path, name: str, members: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-1.0.dist-info"
    listed = {**members, f"{info}/METADATA": b"Metadata-Version: 2.1\nName: %s\nVersion: 1.0\n" % name.encode()}
    listed[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{member},sha256=x,{len(data)}\n" for member, data in listed.items()) + f"{info}/RECORD,,\n"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in listed.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/RECORD", record)
    return path


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A small real bundle: two wheels and a folder of kernels."""
    root = tmp_path / "bundle"
    make_wheel(root / "wheels", "alpha", {"alpha/__init__.py": b"x = 1\n", "alpha/big.so": os.urandom(3 * MIB)})
    make_wheel(root / "wheels", "beta", {"beta/__init__.py": b""})
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "topk.so").write_bytes(b"\x7fELF")
    contents = build.Contents(
        engine="cuda",
        vllm="0.33.0",
        target=build.Target("3.12"),
        lock="alpha==1.0\nbeta==1.0\n",
        chosen=Selection((Pin("alpha", "1.0"), Pin("beta", "1.0")), ()),
        extras={"kernels": tmp_path / "kernels"},
    )
    build.finish(root, contents)
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_pieces_join_to_the_same_bundle(bundle: Path, tmp_path: Path) -> None:
    count = pieces.split(bundle, tmp_path / "p", MIB)
    assert count >= 3
    assert all(path.stat().st_size <= MIB for path in (tmp_path / "p").glob("piece.*"))
    pieces.join(tmp_path / "p", tmp_path / "joined")
    assert contents(tmp_path / "joined") == contents(bundle)
    verify(tmp_path / "joined")


def test_the_other_side_needs_only_the_standard_library(bundle: Path, tmp_path: Path) -> None:
    pieces.split(bundle, tmp_path / "p", MIB)
    command = [
        sys.executable,
        "-I",
        "-S",
        str(tmp_path / "p" / "join.py"),
        str(tmp_path / "p"),
        str(tmp_path / "there"),
    ]
    subprocess.run(command, check=True)
    assert contents(tmp_path / "there") == contents(bundle)


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda folder: (folder / "piece.001").unlink(), "missing: piece.001"),
        (lambda folder: _flip(folder / "piece.001"), "piece.001|whole archive"),
        (lambda folder: _flip_last(folder), "digest differs|whole archive"),
        (lambda folder: (folder / "pieces.json").unlink(), "no pieces.json"),
        (lambda folder: os.truncate(folder / "piece.000", 1000), "piece.000|whole archive"),
    ],
    ids=["lost", "flipped", "flipped at the end", "no index", "cut short"],
)
def test_damaged_pieces_are_refused_and_leave_nothing(bundle: Path, tmp_path: Path, damage, word: str) -> None:  # type: ignore[no-untyped-def]
    pieces.split(bundle, tmp_path / "p", MIB)
    damage(tmp_path / "p")
    with pytest.raises(BundleError, match=word):
        pieces.join(tmp_path / "p", tmp_path / "joined")
    assert not list(tmp_path.glob("joined*"))


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _flip_last(folder: Path) -> None:
    last = sorted(folder.glob("piece.*"))[-1]
    data = bytearray(last.read_bytes())
    data[-1] ^= 1
    last.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda root: (root / "kernels" / "topk.so").unlink(), "kernels/topk.so: missing"),
        (lambda root: (root / "kernels" / "topk.so").write_bytes(b"\x7fELG"), "kernels/topk.so: digest differs"),
        (lambda root: (root / "kernels" / "topk.so").write_bytes(b"longer"), "6 bytes, 4 expected"),
        (lambda root: (root / "extra").write_bytes(b""), "extra: not in the manifest"),
        (lambda root: (root / "bundle.json").unlink(), "is not a bundle"),
        (lambda root: (root / "bundle.json").write_text("{"), "is no manifest that qwenlab"),
    ],
)
def test_verify_names_every_fault(bundle: Path, damage, word: str) -> None:  # type: ignore[no-untyped-def]
    damage(bundle)
    with pytest.raises(BundleError, match=word):
        verify(bundle)


def test_trim_drops_members_and_keeps_record_in_step(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "alpha", {"alpha/__init__.py": b"x = 1\n", "alpha/fa2.so": b"big"})
    assert build.trim(wheel, ["alpha/fa2*.so"]) == ("alpha/fa2.so",)
    with zipfile.ZipFile(wheel) as archive:
        record = archive.read("alpha-1.0.dist-info/RECORD").decode()
        assert set(archive.namelist()) == {line.split(",")[0] for line in record.splitlines()}
        assert "alpha/fa2.so" not in record
        assert all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())


def test_wheels_come_from_the_named_folder_and_their_hashes_are_demanded(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "links", "alpha", {"alpha/__init__.py": b""})
    offline = ["--no-index", "--find-links", str(wheel.parent)]
    said: list[str] = []
    build.fetch_wheels([Pin("alpha", "1.0")], build.Target("3.12"), tmp_path / "b" / "wheels", offline, said.append)
    assert said == ["[1/1] alpha-1.0-py3-none-any.whl"]
    wrong = Pin("alpha", "1.0", ("sha256:" + "0" * 64,))
    with pytest.raises(BundleError, match="alpha"):
        build.fetch_wheels([wrong], build.Target("3.12"), tmp_path / "c" / "wheels", offline, said.append)
    with pytest.raises(BundleError, match="gamma"):
        build.fetch_wheels([Pin("gamma", "2")], build.Target("3.12"), tmp_path / "d" / "wheels", offline, said.append)


def test_the_command_makes_a_bundle_and_says_what_stays_behind(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "fetch_uv", lambda *_: None)
    make_wheel(tmp_path / "links", "alpha", {"alpha/__init__.py": b""})
    (tmp_path / "lock").write_text("alpha==1.0\nbeta==1.0\n")
    (tmp_path / "have").write_text("beta==1.0\n")
    call = ["--engine", "cuda", "--vllm", "0.33.0", "--lock", str(tmp_path / "lock"), "--have", str(tmp_path / "have")]
    code = main([*call, "--find-links", str(tmp_path / "links"), "--out", str(tmp_path / "b"), "--piece-mib", "1"])
    assert code == 0, capfd.readouterr().err
    manifest = read(tmp_path / "b")
    assert [file.path for file in manifest.wheels()] == ["wheels/alpha-1.0-py3-none-any.whl"]
    assert [out.name for out in manifest.left_out] == ["beta"]
    assert json.loads((tmp_path / "b.pieces" / "pieces.json").read_text())["pieces"]
    assert main(["--verify", str(tmp_path / "b")]) == 0
    assert main([*call, "--out", str(tmp_path / "b")]) == 2
    assert "exists already" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--have", "{tmp}/absent"], "--have: cannot read {tmp}/absent: No such file or directory"),
        (["--lock", "{tmp}/absent"], "--lock: cannot read {tmp}/absent: No such file or directory"),
        (["--lock", "{tmp}"], "--lock: cannot read {tmp}: Is a directory"),
        (["--lock", "{tmp}/odd"], "the lock has a line that is no requirement"),
        (["--add", "models"], "write NAME=DIR"),
        (["--add", "../models={tmp}"], "must lie below the bundle"),
        (["--add", "models={tmp}/absent"], "is not a directory"),
        (["--python", "3.99"], "is pinned for Python 3.1"),
        (["--python", "three"], "not three"),
    ],
)
def test_a_fault_is_one_line_before_anything_is_fetched(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fetched(*_: object) -> None:
        raise AssertionError("pip was asked")

    monkeypatch.setattr(build, "fetch_wheels", fetched)
    (tmp_path / "odd").write_text("alpha === = 1\n")
    given = [word.format(tmp=tmp_path) for word in arguments]
    assert main(["--engine", "cuda", "--out", str(tmp_path / "b"), *given]) == 2
    said = capsys.readouterr().err
    assert words.format(tmp=tmp_path) in said
    assert said.count("\n") == 1
    assert not (tmp_path / "b.partial").exists()


@pytest.mark.parametrize(
    "fault", [BundleError("no wheel"), KeyboardInterrupt(), OSError(28, "No space left on device")]
)
def test_a_failed_make_leaves_nothing(fault: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_pins: object, _target: object, out: Path, *_: object) -> None:
        out.mkdir(parents=True)
        raise fault

    monkeypatch.setattr(build, "fetch_wheels", fail)
    call = ["--engine", "cuda", "--out", str(tmp_path / "b")]
    if isinstance(fault, BundleError):
        assert main(call) == 2
    else:
        with pytest.raises(type(fault)):
            main(call)
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_carries_uv_patches_and_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched: list[str] = []

    def fetch(pins: list[Pin], _target: object, out: Path, *_: object) -> None:
        fetched.extend(f"{out.name}/{pin}" for pin in pins if pin.name in ("uv", "torch"))
        make_wheel(out, pins[0].name.replace("-", "_"), {"x.py": b""})

    monkeypatch.setattr(build, "fetch_wheels", fetch)
    model, debs = tmp_path / "tiny", tmp_path / "debs"
    for path in (model / "config.json", debs / "libnuma1_2_amd64.deb"):
        path.parent.mkdir()
        path.write_text("{}")
    commit = "0123456789abcdef0123456789abcdef01234567"
    call = ["--engine", "cpu", "--python", "3.11", "--out", str(tmp_path / "b"), "--debs", str(debs)]
    assert main([*call, "--checkpoint", f"lab/tiny@{commit}={model}"]) == 0
    assert fetched == ["wheels/torch==2.13.0+cpu", "uv/uv==0.13.9"]
    paths = {file.path for file in verify(tmp_path / "b").files}
    assert {f"models/lab/tiny/{commit}/config.json", "debs/libnuma1_2_amd64.deb", "patches/series.yaml"} <= paths


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--checkpoint", "lab/tiny"], "write OWNER/NAME@COMMIT"),
        (["--checkpoint", "lab/tiny@main"], "all 40 digits"),
        (["--checkpoint", f"lab/tiny@{'0' * 40}=/nowhere"], "/nowhere holds no config.json"),
        (["--debs", "/nowhere"], "--debs: /nowhere holds no *.deb"),
        (["--kernels", "/nowhere"], "--kernels: /nowhere holds no kernels.json"),
    ],
)
def test_what_cannot_be_carried_is_told_before_anything_is_fetched(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build, "fetch_wheels", lambda *_: pytest.fail("pip was asked"))
    assert main(["--engine", "cuda", "--out", str(tmp_path / "b"), *arguments]) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_uv_knows_the_python_that_a_bundle_carries() -> None:
    """The archive lies below the mirror as uv looks for it there: <date>/<archive>."""
    address = fetch.python_archive("3.12", "x86_64")
    assert re.fullmatch(r"https://\S+/releases/download/\d{8}/cpython-3\.12\.\d+%2B\d{8}-x86_64\S+\.tar\.gz", address)
    with pytest.raises(BundleError, match=r"uv knows no Python 3\.99"):
        fetch.python_archive("3.99", "x86_64")


def test_a_python_is_fetched_into_the_layout_of_a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = (
        "https://host/github/python-build-standalone/releases/download/20261110/cpython-3.12.16%2B20261110-x.tar.gz"
    )
    monkeypatch.setattr(fetch, "python_archive", lambda *_: address)
    (tmp_path / "mirror/20261110").mkdir(parents=True)
    (tmp_path / "mirror/20261110/cpython-3.12.16+20261110-x.tar.gz").write_bytes(b"python")
    said: list[str] = []
    fetch.python("3.12", "x86_64", tmp_path / "python", f"file://{tmp_path}/mirror/", said.append)
    assert (tmp_path / "python/20261110/cpython-3.12.16+20261110-x.tar.gz").read_bytes() == b"python"
    with pytest.raises(BundleError, match="--python-mirror"):
        fetch.python("3.12", "x86_64", tmp_path / "other", f"file://{tmp_path}/away", said.append)


def test_uv_takes_a_python_from_a_bundles_directory(tmp_path: Path) -> None:
    rest = unquote(fetch.python_archive("3.12", "x86_64").partition("/releases/download/")[2])
    archive = tmp_path / "mirror" / rest
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"no archive, so that uv says which file it read")
    fetch.python("3.12", "x86_64", tmp_path / "python", f"file://{quote(str(tmp_path / 'mirror'))}", lambda _: None)
    environment = {
        "PATH": os.environ["PATH"],
        "UV_NO_CONFIG": "1",
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_PYTHON_INSTALL_DIR": str(tmp_path / "pythons"),
        "UV_PYTHON_INSTALL_MIRROR": f"file://{tmp_path}/python",
    }
    command = ["uv", "venv", "--no-project", "--managed-python", "--python", "3.12", str(tmp_path / "venv")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "Failed to extract archive: cpython-3.12" in run.stderr, run.stderr
