"""Bare hosts in, serving hosts out:  pyinfra inventory/lab.py deploy.py"""

from tasks import checkpoints, engine, host, service, uv
from tasks.settings import load_for_host

desired = load_for_host()

if desired is not None:
    settings = desired.settings

    host.become_root()
    host.check(settings=settings)

    host.install(desired=desired)
    uv.install(settings=settings)
    engine.install(settings=settings)
    checkpoints.install(desired=desired)

    service.configure(desired=desired)

    engine.activate(settings=settings)
    service.activate(settings=settings)
    engine.prune(settings=settings)
