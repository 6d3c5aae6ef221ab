"""Bare hosts in, serving hosts out:  pyinfra inventory/lab.py deploy.py"""

from tasks import checkpoints, cuda, driver, engine, host, power, service, uv
from tasks.settings import load_for_host

desired = load_for_host()

if desired is not None:
    settings = desired.settings

    host.become_root()
    host.check(settings=settings)
    driver.check(settings=settings)

    host.install(desired=desired)
    driver.install(settings=settings)
    power.configure(settings=settings)
    cuda.install(settings=settings)
    uv.install(settings=settings)
    engine.install(settings=settings)
    checkpoints.install(desired=desired)

    cuda.configure(settings=settings)
    service.configure(desired=desired)

    engine.activate(settings=settings)
    service.activate(settings=settings)
    if settings.verify:
        service.verify(settings=settings, rollback=settings.auto_rollback)
    service.remember()
    engine.prune(settings=settings)
