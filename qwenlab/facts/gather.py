"""Gathering a host in one round trip: `gather.sh` with the NVML dump inside, as one command line.

NVML is read through the real nvidia-ml-py, whose single file travels inside the script, so that nothing needs to be
installed on the target. Without Python there everything but NVML still comes. Standard library only.
"""

from __future__ import annotations

import ast
import base64
import gzip
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from qwenlab.facts.readings import ParseError
from qwenlab.facts.recording import Recording, from_output

_HERE = Path(__file__).parent
_PLACE = "@NVML_PROGRAM@"
_LIMIT_S = 120


@cache
def script() -> str:
    """The whole POSIX shell script."""
    return (_HERE / "gather.sh").read_text(encoding="utf-8").replace(_PLACE, _nvml_program())


@cache
def command() -> str:
    """The script as one shell command without any quoting, about 60 kB (one argument may have 128 KiB on Linux)."""
    packed = base64.b64encode(gzip.compress(script().encode(), 9, mtime=0)).decode()
    return f"printf %s {packed} | base64 -d | gzip -dc | sh"


def gather_here() -> Recording:
    """Gather this machine. Raises `ParseError` when the script was cut off or did not end in time."""
    try:
        done = subprocess.run(
            ["sh"], input=script(), capture_output=True, text=True, errors="replace", timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ParseError(f"gathering did not end within {_LIMIT_S} s") from None
    return from_output(done.stdout)


def _nvml_program() -> str:
    """`gather_nvml.py` behind a module object made from nvidia-ml-py's source, when this machine has it."""
    program = _bare(_HERE / "gather_nvml.py")
    found = find_spec("pynvml")
    if found is None or found.origin is None:
        return program
    bindings = _notice(Path(found.origin)) + _bare(Path(found.origin))
    return (
        "import sys, types\n"
        "bindings = types.ModuleType('pynvml')\n"
        "sys.modules['pynvml'] = bindings\n"
        f"exec(compile({bindings!r}, 'pynvml.py', 'exec'), bindings.__dict__)\n"
        f"{program}"
    )


def _bare(path: Path) -> str:
    """A module without comments and docstrings: less to send."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _notice(path: Path) -> str:
    """The copyright and licence lines at the top of a source file, which go with every copy."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = next((index for index, line in enumerate(lines) if not line.startswith("#")), 0)
    return "\n".join([*lines[:head], ""])
