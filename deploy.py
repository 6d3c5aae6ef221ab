"""Bare hosts in, serving hosts out:  pyinfra inventory/lab.py deploy.py"""

from tasks import checkpoints, cuda, driver, engine, gateway, host, power, rollout, uv
from tasks.settings import load_for_host

desired = load_for_host()

if desired is not None:
    settings = desired.settings

    host.become_root()
    host.check(settings=settings)
    driver.check(settings=settings)
    gateway.check(settings=settings)

    host.install(desired=desired)
    driver.install(settings=settings)
    power.configure(settings=settings)
    cuda.install(settings=settings)
    uv.install(settings=settings)
    engine.install(settings=settings)
    checkpoints.install(desired=desired)
    gateway.install(settings=settings)

    rollout.roll_out(desired=desired)

    engine.prune(settings=settings)
