"""The NVIDIA driver: left alone where it works, else installed, pinned, held, and brought to life."""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.context import host

from qwenlab.operations import driver, driver_packages, driver_upgrade
from qwenlab.settings import Settings


@deploy("Check the driver")
def check(settings: Settings) -> None:
    """Refuse a host whose driver cannot be brought to work, before anything is changed."""
    if settings.engine == "cuda":
        driver.check(name="Can its cards be driven?", settings=settings)


@deploy("Driver")
def install(settings: Settings) -> None:
    """The driver that the cards and settings ask for."""
    if settings.engine != "cuda":
        return
    driver_packages.repository(name="NVIDIA's repository", settings=settings)
    driver_packages.pin(name="Stay on the branch", settings=settings)
    driver_packages.fetch(name="Download", settings=settings)
    driver_packages.install(name="Module and libraries", settings=settings)
    driver.boot_files(name="At boot", settings=settings)
    driver_packages.hold(name="Hold", settings=settings)
    driver.activate(name="Load, or reboot", settings=settings)
    driver.works(name="Every card answers", settings=settings)


@deploy("Driver")
def upgrade(settings: Settings) -> None:
    """Replace the driver, one host after the other."""
    if settings.engine != "cuda":
        host.log("nothing to upgrade: the cpu engine needs no driver")
    else:
        driver_upgrade.upgrade(name="Upgrade", settings=settings, _serial=True)
