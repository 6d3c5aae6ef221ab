"""apt-get as one command: patient with other package managers, and with words for what it refuses."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from pyinfra.api.command import QuoteString, StringCommand

from qwenlab.driver.words import APT_ADVICE

APT = "LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout={timeout} {arguments}"
NO_SOURCES = "-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=/dev/null"
KEEP_CONFIGURATION = "-o Dpkg::Options::=--force-confold"
# The lock on package lists is not covered by DPkg::Lock::Timeout, so an update asks again until the time is up. And apt
# that has waited for dpkg's lock in vain does not say who holds it; apt that does not wait does.
SCRIPT = """\
deadline=$(($(date +%s) + {timeout})); \
while :; do \
out=$({command} 2>&1); code=$?; \
case $out in *"Could not get lock"*) \
[ $code -ne 0 ] && [ "$(date +%s)" -lt $deadline ] && {{ sleep 2; continue; }} ;; \
esac; break; done; \
case $out in *"Unable to acquire the dpkg frontend lock"*) out=$({at_once} 2>&1); code=$? ;; esac; \
[ $code -eq 0 ] || {{ echo "$out"; case $out in {advice} esac; }} >&2; exit $code"""


def apt_get(arguments: str, names: Iterable[str] = (), *, timeout: int) -> StringCommand:
    """`apt-get <arguments> <names>`, as one shell command.

    Args:
        timeout: how long to wait for another package manager, in seconds.
    """
    words = " ".join((arguments, *(shlex.quote(name) for name in names)))
    command, at_once = (APT.format(timeout=seconds, arguments=words) for seconds in (timeout, 0))
    advice = " ".join(f"*{shlex.quote(said)}*) echo {shlex.quote(text)} ;;" for said, text in APT_ADVICE.items())
    script = SCRIPT.format(timeout=timeout, command=command, at_once=at_once, advice=advice)
    return StringCommand("sh -c", QuoteString(script))


def install(names: Iterable[str], *, timeout: int, more: str = "") -> StringCommand:
    """Install packages with what they need and nothing else; changed configuration files are kept."""
    options = f"install --yes --no-install-recommends {KEEP_CONFIGURATION}{f' {more}' if more else ''}"
    return apt_get(options, names, timeout=timeout)


def install_files(paths: Iterable[str], *, timeout: int) -> StringCommand:
    """Install .deb files that lie on the host, with no other source: apt knows them and what is installed.

    `--no-download` would not do: apt counts a local file among what it has to fetch and gives up (apt 2.6).
    """
    return install(paths, timeout=timeout, more=NO_SOURCES)


def without_starting(service: str, *installing: StringCommand) -> Iterator[StringCommand]:
    """The commands that install a package, whose service would start an instance that nobody asked for."""
    yield StringCommand(f"systemctl mask --quiet {service}")
    yield from installing
    yield StringCommand(f"systemctl unmask --quiet {service} && systemctl disable --quiet {service}")


def update(*, timeout: int, only: str | None = None) -> StringCommand:
    """Renew package lists: all of them, tolerant of a mirror that fails, or strictly those of one source file."""
    if only is None:
        return apt_get("update", timeout=timeout)
    options = f"-o Dir::Etc::sourcelist={only} -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0"
    return apt_get(f"{options} -o APT::Update::Error-Mode=any update", timeout=timeout)
