"""Does the plan fit, before the checkpoint is fetched?  pyinfra inventory/lab.py plays/rehearse.py -y

What a deploy installs before it fetches checkpoints is installed; the planned engines are then started with weights
that vLLM makes up.
"""

from tasks import bundle, cuda, driver, engine, host, rehearsal, uv
from tasks.settings import load_for_host

desired = load_for_host()

if desired is not None:
    host.become_root()
    desired = bundle.resolve(desired)

if desired is not None:
    settings = desired.settings

    host.check(settings=settings)
    driver.check(settings=settings)
    bundle.check(desired=desired)
    rehearsal.check(settings=settings)

    bundle.carry(desired=desired)
    host.install(desired=desired)
    driver.install(settings=settings)
    cuda.install(settings=settings)
    uv.install(desired=desired)
    engine.install(desired=desired)

    rehearsal.run(desired=desired)

    bundle.tidy(desired=desired)
