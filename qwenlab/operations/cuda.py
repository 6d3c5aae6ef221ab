"""The CUDA toolkit on a host, and the engines' way to it."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra.api.command import PyinfraCommand, StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from qwenlab.driver import toolkit, words
from qwenlab.driver.tables import distribution
from qwenlab.engine.release import choose_python
from qwenlab.facts.cuda_toolkit import CudaToolkit
from qwenlab.facts.driver_state import NvidiaDriver
from qwenlab.facts.file_states import PathStates
from qwenlab.operations import apt
from qwenlab.operations.driver_packages import add_repository
from qwenlab.operations.engine import engine_state
from qwenlab.operations.paths import put_with_folders
from qwenlab.operations.refusal import refusal
from qwenlab.render import RemoteFile
from qwenlab.settings import Settings


@operation()
def packages(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """The toolkit of the engine's CUDA minor from NVIDIA's repository, by its exact name; never a driver with it.

    Args:
        settings: the host's settings; acts with `qwen_cuda_from = apt` alone.
    """
    if settings.cuda_from != "apt":
        host.noop(f"the compiler comes from {settings.cuda_from}")
        return
    wanted = toolkit.minor(settings)
    home, name = f"/usr/local/cuda-{wanted}", toolkit.package(wanted)
    if not toolkit.problems(host.get_fact(CudaToolkit, home=home), wanted, home):
        host.noop(f"{name} is installed")
        return
    state = host.get_fact(NvidiaDriver)
    row = distribution(state.os, state.release)
    if row is None:
        yield refusal([words.unknown_system(state)])
        return
    yield from add_repository(state, settings)
    timeout = settings.apt_lock_timeout_s
    parts = (name, f"libcurand-dev-{wanted.replace('.', '-')}")
    yield apt.install(parts, timeout=timeout, more="--download-only")
    yield apt.install(parts, timeout=timeout)
    if found := toolkit.problems(host.get_fact(CudaToolkit, home=home), wanted, home):
        yield refusal(found)


@operation()
def environment(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """CUDA_HOME and PATH in the engines' units: this compiler, and no other one that lies on the host.

    Args:
        settings: the host's settings.
    """
    python = choose_python(settings, engine_state(settings).pythons).minor
    home = toolkit.home(settings, python)
    if home is None:
        if toolkit.DROP_IN in host.get_fact(PathStates, paths=(toolkit.DROP_IN,)):
            yield StringCommand("rm -f", toolkit.DROP_IN, "&& systemctl daemon-reload")
        else:
            host.noop("the units name no compiler")
        return
    changed = yield from put_with_folders({toolkit.DROP_IN: RemoteFile(toolkit.drop_in(home, settings))})
    if changed:
        yield StringCommand("systemctl daemon-reload")
