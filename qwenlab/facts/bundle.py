"""What of a bundle lies on a host, and what of the host decides whether a bundle fits."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.facts import FactBase

PART = ".part"  # ending of a file that is being carried
LIST = r"find @DIRECTORY@ -type f -printf 'file=%s %P\n' 2>/dev/null"
RUNTIME = r"""
echo "glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2)"
@PYTHON@ - 2>/dev/null <<'END'
import importlib.metadata
for one in importlib.metadata.distributions():
    print("package=%s %s" % (one.metadata["Name"], one.version))
END
true
"""


class BundleFiles(FactBase[dict[str, int]]):
    """Path below a directory to size in bytes, of every file; empty when there is no such directory."""

    def command(self, directory: str) -> str:
        """`directory`: of the bundle."""
        return LIST.replace("@DIRECTORY@", shlex.quote(directory)) + "; true"

    def process(self, output: list[str]) -> dict[str, int]:
        """Parse; an odd answer fails this host alone."""
        return sizes(output)

    @staticmethod
    def default() -> dict[str, int]:
        """Nothing."""
        return {}


def sizes(lines: list[str]) -> dict[str, int]:
    """Path to size, from what `find` printed."""
    found = {}
    for line in lines:
        key, _, value = line.strip().partition("=")
        size, _, path = value.partition(" ")
        if key == "file":
            if not size.isdigit():
                raise FactProcessError(f"the files of a bundle could not be listed: {line!r}")
            found[path] = int(size)
    return found


class BundleText(FactBase[str]):
    """A small text file of a bundle; empty when it cannot be read."""

    def command(self, path: str) -> str:
        """`path`: of the file."""
        return f"cat {shlex.quote(path)} 2>/dev/null; true"

    def process(self, output: list[str]) -> str:
        """As it is."""
        return "\n".join(output)

    @staticmethod
    def default() -> str:
        """None."""
        return ""


@dataclass(frozen=True)
class Runtime:
    """What wheels are bound to.

    Attributes:
        glibc: minor of glibc 2.x; None when the host could not tell.
        packages: distributions of one interpreter, canonical name to version.
    """

    glibc: int | None = None
    packages: dict[str, str] = field(default_factory=dict)


class HostRuntime(FactBase[Runtime]):
    """`Runtime` of a host and one of its interpreters."""

    def command(self, python: str) -> str:
        """`python`: path of the interpreter; one that is not there has no packages."""
        return RUNTIME.replace("@PYTHON@", shlex.quote(python)).strip()

    def process(self, output: list[str]) -> Runtime:
        """Parse; lines that are none of ours are passed over."""
        glibc: int | None = None
        packages: dict[str, str] = {}
        for line in output:
            key, _, value = line.strip().partition("=")
            if key == "glibc" and value.startswith("2.") and value[2:].isdigit():
                glibc = int(value[2:])
            elif key == "package":
                name, _, version = value.partition(" ")
                packages.setdefault(name.lower().replace("_", "-").replace(".", "-"), version)
        return Runtime(glibc, packages)

    @staticmethod
    def default() -> Runtime:
        """Nothing known."""
        return Runtime()
