"""`python -m qwenlab bundle`: make, split, join and verify an offline bundle."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from qwenlab.bundle import build, fetch, pieces
from qwenlab.bundle.manifest import BundleError, verify
from qwenlab.bundle.selection import parse_have, parse_lock, select
from qwenlab.engine.pins import EngineRelease, pins
from qwenlab.output import named
from qwenlab.patches.manifest import releases, series_root

MIB = 1 << 20


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog="python -m qwenlab bundle", description=__doc__)
    what = options.add_mutually_exclusive_group(required=True)
    what.add_argument("--engine", choices=("cuda", "cpu"), help="make a bundle with this engine")
    what.add_argument("--split", type=Path, metavar="BUNDLE", help="cut an existing bundle into pieces")
    what.add_argument("--join", type=Path, metavar="PIECES", help="put pieces together again, into --out")
    what.add_argument("--verify", type=Path, metavar="BUNDLE", help="check every file of a bundle")
    options.add_argument("--out", "--to", type=named, dest="out", metavar="DIR", help="new directory to write")
    options.add_argument("--vllm", help="vLLM version (default: the engine's default pin)")
    options.add_argument("--python", default="3.12", help="Python minor of the target (default %(default)s)")
    options.add_argument(
        "--glibc",
        type=_glibc,
        default=35,
        metavar="MINOR",
        help="minor of the target's glibc 2.x (default %(default)s)",
    )
    options.add_argument("--lock", type=Path, help="another lock than the engine's own (no deploy takes such a bundle)")
    options.add_argument("--have", type=Path, help="`pip list --format=freeze` of the target: equal versions stay out")
    options.add_argument(
        "--accept", default="", metavar="A,B", help="packages whose other version there is good enough"
    )
    options.add_argument("--leave", default="", metavar="A,B", help="packages left out although the target lacks them")
    options.add_argument("--trim", action="append", default=[], metavar="GLOB", help="members to drop from wheels")
    options.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        metavar="OWNER/NAME@COMMIT[=DIR]",
        help="a checkpoint, from the hub (HF_ENDPOINT, HF_TOKEN) or from DIR",
    )
    options.add_argument("--debs", type=Path, metavar="DIR", help="Debian packages (.deb) that the target lacks")
    options.add_argument(
        "--kernels", type=Path, metavar="DIR", help="FlashInfer kernels built by qwenlab/bundle/kernels.py"
    )
    options.add_argument("--with-python", action="store_true", help="carry the Python that uv would fetch")
    options.add_argument("--python-mirror", metavar="URL", help="mirror of python-build-standalone's releases")
    options.add_argument(
        "--add", action="append", default=[], metavar="NAME=DIR", help="add DIR as NAME, for other uses"
    )
    options.add_argument("--index-url", help="package index (default: PyPI or pip's own configuration)")
    options.add_argument("--extra-index-url", action="append", default=[])
    options.add_argument("--find-links", action="append", default=[], metavar="DIR")
    options.add_argument(
        "--piece-mib", type=_mib, metavar="MIB", help="also cut into pieces of this size, in OUT.pieces"
    )
    return options


def _glibc(text: str) -> int:
    if not text.isdecimal() or not 17 <= int(text) <= 99:  # manylinux2014 is the oldest that any wheel is built for
        raise argparse.ArgumentTypeError(f"{text!r} is no minor of a glibc 2.x from 17 on (getconf GNU_LIBC_VERSION)")
    return int(text)


def _mib(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no size of a piece; write MiB, at least 1")
    return int(text)


def main(argv: list[str]) -> int:
    """Run the command; 0 done, 2 refused with the reason on stderr."""
    words = parser()
    options = words.parse_args(argv)
    if not options.verify and options.out is None:
        words.error("name the directory to write with --out")
    try:
        if options.verify:
            manifest = verify(options.verify)
            print(f"whole: {len(manifest.files)} files, vLLM {manifest.vllm} ({manifest.engine})")
            return 0
        if options.join:
            pieces.join(options.join, options.out)
            print(f"joined and whole: {len(verify(options.out).files)} files in {options.out}")
        elif options.split:
            verify(options.split)
            print(
                f"{pieces.split(options.split, options.out, (options.piece_mib or 1024) * MIB)} pieces in {options.out}"
            )
        else:
            _make(options)
    except BundleError as error:
        print(f"qwenlab bundle: {error}", file=sys.stderr)
        return 2
    return 0


def _make(options: argparse.Namespace) -> None:
    root: Path = options.out
    if root.exists():
        raise BundleError(f"{root} exists already; name a new directory")
    order = _order(options)
    partial = root.with_name(root.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        _fetch(partial, order, options)
        trimmed: list[str] = []
        if options.trim or options.piece_mib:
            for wheel in sorted((partial / "wheels").glob("*.whl")):
                trimmed += build.trim(wheel, options.trim)
        for name in trimmed:
            _say(f"dropped {name}")
        build.finish(partial, order.contents, trimmed)
        partial.rename(root)
    except BaseException:  # an interrupt too: half a bundle helps nobody and fills the disk
        shutil.rmtree(partial, ignore_errors=True)
        raise
    print(f"bundle in {root}")
    if options.piece_mib:
        out = root.with_name(root.name + ".pieces")
        print(f"{pieces.split(root, out, options.piece_mib * MIB)} pieces in {out}")


@dataclass(frozen=True)
class _Checkpoint:
    repo: str
    commit: str
    source: Path | None


@dataclass(frozen=True)
class _Order:
    """A bundle as the options ask for it, every one of them looked at before anything is fetched."""

    release: EngineRelease
    contents: build.Contents
    checkpoints: tuple[_Checkpoint, ...]


def _order(options: argparse.Namespace) -> _Order:
    target = build.Target(options.python, options.glibc)
    release = _pinned(options)
    if target.python not in release.pythons:
        raise BundleError(f"vLLM {release.vllm} is pinned for Python {', '.join(release.pythons)}, not {target.python}")
    lock = _read("--lock", options.lock) if options.lock else release.lock()
    have = parse_have(_read("--have", options.have)) if options.have else {}
    checkpoints = tuple(_checkpoint(item) for item in options.checkpoint)
    series = {"patches": series_root() / release.vllm} if release.vllm in releases() else {}
    extras = series | _extras(options.add) | _folders(options)
    extras |= {f"models/{one.repo}/{one.commit}": one.source for one in checkpoints if one.source is not None}
    chosen = select(parse_lock(lock, target.markers()), have, _names(options.accept), _names(options.leave))
    contents = build.Contents(release.engine, release.vllm, target, lock, chosen, extras)
    return _Order(release, contents, checkpoints)


def _fetch(partial: Path, order: _Order, options: argparse.Namespace) -> None:
    """Everything that comes over the network."""
    target, chosen = order.contents.target, order.contents.chosen
    index = _index(options, order.release)
    _say(f"{len(chosen.travels)} packages travel, {len(chosen.left_out)} stay behind")
    build.fetch_wheels(chosen.travels, target, partial / "wheels", index, _say)
    build.fetch_uv(pins().uv, target, partial / "uv", index, _say)
    if options.with_python:
        fetch.python(target.python, target.machine, partial / "python", options.python_mirror, _say)
    for one in order.checkpoints:
        if one.source is None:
            fetch.checkpoint(one.repo, one.commit, partial / "models" / one.repo / one.commit, _say)


def _read(option: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BundleError(f"{option}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BundleError(f"{option}: {path} is not UTF-8 text") from None


def _checkpoint(item: str) -> _Checkpoint:
    """One `--checkpoint`."""
    found = re.fullmatch(r"([\w.-]+/[\w.-]+)@([0-9a-f]{40})(?:=(.+))?", item)
    if found is None:
        raise BundleError(f"--checkpoint {item}: write OWNER/NAME@COMMIT or OWNER/NAME@COMMIT=DIR, all 40 digits")
    repo, commit, place = found.groups()
    if place is not None and not (Path(place) / "config.json").is_file():
        raise BundleError(f"--checkpoint {item}: {place} holds no config.json")
    return _Checkpoint(repo, commit, None if place is None else Path(place))


def _folders(options: argparse.Namespace) -> dict[str, Path]:
    """Directories that a deploy knows by their name, each with what it must hold."""
    found: dict[str, Path] = {}
    for name, pattern in (("debs", "*.deb"), ("kernels", "kernels.json")):
        folder: Path | None = getattr(options, name)
        if folder is None:
            continue
        if not any(folder.glob(pattern)):
            raise BundleError(f"--{name}: {folder} holds no {pattern}")
        found[name] = folder
    return found


def _extras(items: list[str]) -> dict[str, Path]:
    """Name below the bundle to the directory copied there, each an existing one."""
    found = {}
    for item in items:
        name, _, source = item.partition("=")
        if not name or not source:
            raise BundleError(f"--add {item}: write NAME=DIR, e.g. models/org/name=/data/model")
        if name.startswith("/") or ".." in name.split("/"):
            raise BundleError(f"--add {item}: the name must lie below the bundle")
        if not Path(source).is_dir():
            raise BundleError(f"--add {item}: {source} is not a directory")
        found[name] = Path(source)
    return found


def _pinned(options: argparse.Namespace) -> EngineRelease:
    try:
        return pins().release(options.engine, options.vllm)
    except KeyError as error:
        raise BundleError(str(error.args[0])) from None


def _index(options: argparse.Namespace, release: EngineRelease) -> list[str]:
    words = ["--index-url", options.index_url] if options.index_url else []
    pages = options.find_links or list(release.find_links)
    for flag, values in (("--extra-index-url", options.extra_index_url), ("--find-links", pages)):
        words += [word for value in values for word in (flag, value)]
    return words


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
