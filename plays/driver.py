"""Driver, toolkit and power limits, without an engine:  pyinfra inventory/lab.py plays/driver.py"""

from tasks import cuda, driver, host, power
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
