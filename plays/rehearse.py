"""Does the plan fit, before the checkpoint is fetched?  pyinfra inventory/lab.py plays/rehearse.py -y

What a deploy installs before it fetches checkpoints is installed; the planned engines are then started with weights
that vLLM makes up.
"""

from tasks import cuda, driver, engine, host, rehearsal, uv
from tasks.settings import load_for_host

desired = load_for_host()

if desired is not None:
    settings = desired.settings

    host.become_root()
    host.check(settings=settings)
    driver.check(settings=settings)
    rehearsal.check(settings=settings)

    host.install(desired=desired)
    driver.install(settings=settings)
    cuda.install(settings=settings)
    uv.install(settings=settings)
    engine.install(settings=settings)

    rehearsal.run(desired=desired)
