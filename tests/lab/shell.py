"""Running a program of this machine and turning its failure into words."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence


class LabError(RuntimeError):
    """The lab cannot do what was asked; the text says why and what helps."""


def run(
    command: Sequence[str],
    *,
    check: bool = True,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `command`, capture its output as text.

    Raises:
        LabError: `check` and the exit code is not 0, or the program is missing, or `timeout` seconds passed.
    """
    try:
        done = subprocess.run(
            list(command), input=stdin, capture_output=True, text=True, env=env, timeout=timeout, errors="replace"
        )
    except FileNotFoundError:
        raise LabError(
            f"{command[0]} is not installed; script/test and script/demo install what the lab needs"
        ) from None
    except subprocess.TimeoutExpired as expired:
        raise LabError(f"{shlex.join(command)} gave no answer within {expired.timeout:.0f} s") from None
    if check and done.returncode != 0:
        raise LabError(f"{shlex.join(command)} ended {done.returncode}:\n{done.stderr.strip() or done.stdout.strip()}")
    return done
