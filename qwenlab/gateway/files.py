"""The gateway's files, from plan and settings alone: pure. The certificate with its key is not among them."""

from __future__ import annotations

from ipaddress import ip_address

from qwenlab.planner.plan import EnginePlan, HostPlan
from qwenlab.render import ETC, UNITS, RemoteFile, template
from qwenlab.settings import Settings

USER = "qwen-gateway"
UNIT = "qwen-gateway.service"
FOLDER = f"{ETC}/gateway"
CONFIG = f"{FOLDER}/haproxy.cfg"
PEM = f"{FOLDER}/tls.pem"
UNIT_FILE = f"{UNITS}/{UNIT}"
FULL_WEIGHT = 100  # of the fastest engine; HAProxy takes 1 to 256
LAST_PRIVILEGED_PORT = 1023


def gateway_files(plan: HostPlan, settings: Settings) -> dict[str, RemoteFile]:
    """Path to file; empty where the gateway is off."""
    if not settings.gateway:
        return {}
    weight = weights(plan.engines)
    paths = {"config": CONFIG, "pem": PEM, "user": USER, "unit": UNIT_FILE}
    engines = [{"name": one.name, "port": one.port, "weight": weight[one.name]} for one in plan.engines]
    config = template(
        "gateway/haproxy.cfg.j2", settings=settings, files=paths, engines=engines, address=bracketed(settings)
    )
    privileged = settings.endpoint_port <= LAST_PRIVILEGED_PORT
    unit = template("systemd/qwen-gateway.service.j2", settings=settings, files=paths, privileged=privileged)
    return {CONFIG: RemoteFile(config), UNIT_FILE: RemoteFile(unit)}


def weights(engines: tuple[EnginePlan, ...]) -> dict[str, int]:
    """Share of the requests that each engine shall have: by the tokens per second that the plan expects of it."""
    rates = [one.predicted.aggregate_tok_s or one.predicted.decode_tok_s if one.predicted else None for one in engines]
    known = [rate for rate in rates if rate]
    if len(known) < len(engines):
        return {one.name: FULL_WEIGHT for one in engines}
    return {one.name: max(1, round(FULL_WEIGHT * rate / max(known))) for one, rate in zip(engines, known, strict=True)}


def bracketed(settings: Settings) -> str:
    """Address and port that the gateway listens on, as HAProxy writes them."""
    address = settings.bind_address
    return f"{f'[{address}]' if ip_address(address).version == 6 else address}:{settings.endpoint_port}"
