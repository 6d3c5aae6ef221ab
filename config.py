"""pyinfra's own settings, read before anything else when pyinfra runs in this folder (else: --config)."""

from pyinfra.api.host import Host
from pyinfra.api.state import BaseStateCallback, State
from pyinfra.context import config, state

from qwenlab.connection import advice

config.REQUIRE_PYINFRA_VERSION = "~=3.10.0"


class _Hints(BaseStateCallback):
    @staticmethod
    def host_connect_error(state: State, host: Host, error: Exception) -> None:
        """Tell the owner what to do about a host that cannot be reached."""
        host.log(advice(str(error), host.name, host.data.get("ssh_user"), host.data.get("ssh_key")))


state.add_callback_handler(_Hints)
