"""Which packages of a lock must travel, given what the target already has. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from qwenlab.bundle.manifest import BundleError, LeftOut

_OPTION = re.compile(r"^\s*(#|--)")
_HASH = re.compile(r"--hash=(\S+)")


@dataclass(frozen=True)
class Pin:
    """One package of a lock; `hashes` as pip writes them (`sha256:...`)."""

    name: str
    version: str
    hashes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Selection:
    """What travels and what stays behind, both in name order."""

    travels: tuple[Pin, ...]
    left_out: tuple[LeftOut, ...]


def parse_lock(text: str, environment: Mapping[str, str]) -> tuple[Pin, ...]:
    """The `name==version` pins of a requirements lock whose markers hold in `environment`.

    Args:
        text: output of `uv pip compile`, hashes and comments included.
        environment: PEP 508 marker variables of the target (`python_version`, `platform_machine`, ...).

    Raises:
        BundleError: a line that is not an exact pin.
    """
    pins = {}
    for line in text.replace("\\\n", " ").splitlines():
        bare = line.split(" --hash")[0].split(" #")[0].strip()
        if not bare or _OPTION.match(bare):
            continue
        try:
            requirement = Requirement(bare)
        except InvalidRequirement as error:
            raise BundleError(
                f"the lock has a line that is no requirement: {bare!r} ({str(error).splitlines()[0]})"
            ) from None
        if requirement.marker is not None and not requirement.marker.evaluate(dict(environment)):
            continue
        exact = [item.version for item in requirement.specifier if item.operator == "=="]
        if len(exact) != 1:
            raise BundleError(f"the lock must pin every package with ==, not {bare!r}")
        name = canonicalize_name(requirement.name)
        pins[name] = Pin(name, exact[0], tuple(_HASH.findall(line)))
    return tuple(pins[name] for name in sorted(pins))


def parse_have(text: str) -> dict[str, str]:
    """`pip list --format=freeze` of the target: canonical name -> version. Lines without `==` are ignored."""
    found = {}
    for line in text.splitlines():
        name, mark, version = line.strip().partition("==")
        if mark and not _OPTION.match(name):
            found[str(canonicalize_name(name))] = version
    return found


def select(
    lock: Iterable[Pin], have: Mapping[str, str], accept: Collection[str] = (), leave: Collection[str] = ()
) -> Selection:
    """Split a lock into what travels and what does not.

    Args:
        have: what the target has; an equal version stays behind.
        accept: packages whose other version on the target is good enough (torch built for the host's CUDA, say).
        leave: packages left out although the target lacks them.

    Raises:
        BundleError: `accept` names a package that the target does not have, or either names one not in the lock.
    """
    accepted = {str(canonicalize_name(name)) for name in accept}
    left = {str(canonicalize_name(name)) for name in leave}
    pins = tuple(lock)
    unknown = (accepted | left) - {pin.name for pin in pins}
    if unknown:
        raise BundleError(f"not in the lock: {', '.join(sorted(unknown))}")
    absent = accepted - have.keys()
    if absent:
        raise BundleError(f"--accept names what the target does not have: {', '.join(sorted(absent))}")
    travels, out = [], []
    for pin in pins:
        there = have.get(pin.name)
        if there == pin.version:
            why = "the target has this version"
        elif pin.name in accepted:
            why = "the target's other version was accepted"
        elif pin.name in left:
            why = "left out on request"
        else:
            travels.append(pin)
            continue
        out.append(LeftOut(name=pin.name, version=pin.version, target_has=there, why=why))
    return Selection(tuple(travels), tuple(out))
