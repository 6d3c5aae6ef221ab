"""Does every engine answer rightly, and as fast as before?  pyinfra inventory/lab.py plays/verify.py -y"""

from tasks import host, service
from tasks.settings import load_for_host

desired = load_for_host()

if desired is not None:
    host.become_root()
    service.verify(settings=desired.settings)
