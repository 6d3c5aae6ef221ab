"""`python -m qwenlab lock`: resolve the locks of all pinned releases anew with `uv pip compile`.

A lock is resolved once and shipped; a deploy only installs it. It is universal over the row's Python minors and
architectures and carries the sha256 of every file, so that it holds for PyPI, a mirror and a folder of wheels alike.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from qwenlab.engine.pins import EngineRelease, pins

LOCKS = Path(__file__).with_name("locks")


def project(row: EngineRelease) -> str:
    """The pyproject.toml from which `uv pip compile` resolves `row`."""
    oldest, newest = row.pythons[0], row.pythons[-1]
    after = f"3.{int(newest.split('.')[1]) + 1}"
    left_out = [*row.left_out, *([row.off_index.name] if row.off_index else [])]
    needs = row.off_index.needs if row.off_index else ()
    lists = {
        "environments": [f"sys_platform == 'linux' and platform_machine == '{arch}'" for arch in row.architectures],
        "constraint-dependencies": [f"{name}=={version}" for name, version in sorted(row.constraints.items())],
        "override-dependencies": [f"{name} ; sys_platform == 'never'" for name in left_out],
    }
    return "\n".join(
        [
            "[project]",
            'name = "lock"',
            'version = "0"',
            f'requires-python = ">={oldest},<{after}"',
            f"dependencies = {_toml([*row.requirements, *needs])}",
            "[tool.uv]",
            *(f"{key} = {_toml(values)}" for key, values in lists.items()),
            "",
        ]
    )


def _toml(values: list[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"


def with_off_index(row: EngineRelease, resolved: str) -> str:
    """`resolved` with the package that is on no index appended."""
    if row.off_index is None:
        return resolved
    digests = "".join(f" \\\n    --hash=sha256:{digest}" for digest in row.off_index.sha256)
    return f"{resolved.rstrip()}\n{row.off_index.name}=={row.off_index.version}{digests}\n"


def resolve(row: EngineRelease) -> str:
    """The lock of `row`, resolved against the index that uv is set up with.

    Raises:
        subprocess.CalledProcessError: uv found no solution; its words are on stderr.
    """
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "pyproject.toml").write_text(project(row))
        result = subprocess.run(
            [
                *("uv", "pip", "compile", "pyproject.toml", "--universal", "--python-version", row.pythons[0]),
                *("--generate-hashes", "--no-annotate", "--no-header", "--quiet"),
            ],
            cwd=directory,  # uv reads [tool.uv] from the folder it runs in
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    header = f"# {row.engine} engine, vLLM {row.vllm}. Resolved by `python -m qwenlab lock`; do not edit.\n"
    return header + with_off_index(row, result.stdout)


def main(argv: list[str]) -> int:
    """Resolve all locks, or those whose file name contains one of the given words."""
    parser = argparse.ArgumentParser(prog="python -m qwenlab lock", description=__doc__)
    parser.add_argument("only", nargs="*", help="part of a lock's name, e.g. cpu or 0.33.0 (default: all)")
    wanted = parser.parse_args(argv).only
    names = [row.lock_name for row in pins().releases]
    for word in wanted:
        if not any(word in name for name in names):
            print(f"qwenlab lock: no pin is called {word}; there is {', '.join(names)}", file=sys.stderr)
            return 64
    for row in pins().releases:
        if wanted and not any(word in row.lock_name for word in wanted):
            continue
        print(f"resolving {row.lock_name}", file=sys.stderr)
        LOCKS.joinpath(row.lock_name).write_text(resolve(row))
    return 0
