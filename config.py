"""pyinfra's own settings, read before anything else when pyinfra runs in this folder (else: --config)."""

from pyinfra import logger
from pyinfra.context import config

from qwenlab.connection import ConnectionAdvice, NoHosts, prepare_ssh

config.REQUIRE_PYINFRA_VERSION = "~=3.10.0"

logger.addHandler(ConnectionAdvice())
logger.addHandler(NoHosts())
prepare_ssh()
