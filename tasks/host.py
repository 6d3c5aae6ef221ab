"""The host base: checks, user, directories, certificates, proxies."""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.context import host
from pyinfra.operations import server

from qwenlab import programs
from qwenlab.bundle.source import debs_on_host
from qwenlab.facts.host_base import UserId
from qwenlab.operations import host as base
from qwenlab.operations import paths
from qwenlab.operations.gateway import PACKAGE as HAPROXY
from qwenlab.operations.monitoring import EXPORTER
from qwenlab.operations.paths import Directory
from qwenlab.remote import LIBRARY
from qwenlab.render import (
    APT_CONF,
    ENGINES,
    ETC,
    SECRETS,
    RemoteFile,
    apt_file,
)
from qwenlab.settings import Settings
from tasks.settings import Desired

CERTIFICATES = "/usr/local/share/ca-certificates"
PACKAGES = {
    # engine -> distribution packages that a bare host may lack; Triton compiles its launchers with gcc and Python.h
    "cuda": ("ca-certificates", "libnuma1", "gcc", "libc6-dev", "python3-dev"),
    "cpu": ("ca-certificates", "libnuma1"),
}


def packages_of(settings: Settings) -> tuple[str, ...]:
    """Every distribution package of a deploy, the gateway's too."""
    return (*PACKAGES[settings.engine], *((HAPROXY,) if settings.gateway else ()))


def packages_by_hand(settings: Settings) -> tuple[str, ...]:
    """Packages of the monitoring, which come from the distribution alone."""
    return (*((EXPORTER,) if settings.scraped_from else ()), *(("prometheus",) if settings.prometheus else ()))


def become_root() -> None:
    """Use sudo where pyinfra logs in as another user than root, unless the inventory says `_sudo`."""
    if "_sudo" not in host.data.dict() and host.get_fact(UserId) != 0:
        host.data._sudo = True


@deploy("Check the host")
def check(settings: Settings) -> None:
    """Refuse an unfit host before anything is changed."""
    base.check(name="Is the host fit?", settings=settings)


@deploy("Host base")
def install(desired: Desired) -> None:
    """Everything that the components stand on."""
    settings = desired.settings
    paths.files(name="apt: patience and proxies", files={APT_CONF: apt_file(settings)})
    debs = {} if settings.offline and desired.bundle is None else debs_on_host(desired.bundle)
    if debs is not None:
        debs.pop(HAPROXY, None)  # the gateway's own step installs it, so that it does not start by itself
    base.packages(
        name="Distribution packages",
        names=PACKAGES[settings.engine],
        lock_timeout_s=settings.apt_lock_timeout_s,
        debs=debs,
    )
    base.certificates(
        name="Certificate authorities",
        wanted={
            f"{CERTIFICATES}/{name}.crt": RemoteFile(text.rstrip("\n") + "\n")
            for name, text in desired.certificates.items()
        },
    )
    server.user(
        name="Service user",
        user=settings.user,
        home=settings.home,
        shell="/usr/sbin/nologin",
        system=True,
        create_home=False,
        ensure_home=False,
    )
    base.hand_down(name="Files of a former service user", settings=settings)
    paths.directories(name="Directories", wanted=directories(settings))
    paths.files(name="Programs", files=programs.programs(settings))


def directories(settings: Settings) -> dict[str, Directory]:
    """Path to rights, parents first."""
    service = Directory(settings.user, settings.user, "750")
    return {
        settings.release_directory: Directory(),
        f"{settings.release_directory}/releases": Directory(),
        settings.uv_cache_directory: Directory(),
        settings.model_directory: Directory(settings.user, settings.user, "755"),
        settings.home: service,
        ETC: Directory(),
        ENGINES: Directory(),
        SECRETS: Directory(mode="700"),
        LIBRARY: Directory(),
        **dict.fromkeys(programs.directories(programs.PACKAGES), Directory()),
    }
