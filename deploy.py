"""Bare hosts in, serving hosts out:  pyinfra inventory/lab.py deploy.py"""

from tasks import bundle, checkpoints, cuda, driver, engine, gateway, host, monitoring, power, rollout, uv
from tasks.settings import load_for_host

desired = load_for_host(serving=False)

if desired is not None:
    host.become_root()
    desired = bundle.resolve(desired)

if desired is not None:
    settings = desired.settings

    if settings.serve:
        host.check(settings=settings)
        driver.check(settings=settings)
        gateway.check(settings=settings)
        bundle.check(desired=desired)

        bundle.carry(desired=desired)
        host.install(desired=desired)
        driver.install(settings=settings)
        power.configure(settings=settings)
        cuda.install(settings=settings)
        uv.install(desired=desired)
        engine.install(desired=desired)
        checkpoints.install(desired=desired)
        gateway.install(desired=desired)

        rollout.roll_out(desired=desired)

        engine.prune(settings=settings)
        bundle.tidy(desired=desired)

    monitoring.offer(settings=settings)
    monitoring.watch(settings=settings)
