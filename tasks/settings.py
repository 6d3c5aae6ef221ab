"""The host's settings, or the host's refusal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from huggingface_hub import get_token
from pyinfra import logger
from pyinfra.context import host, inventory, state

from qwenlab.bundle.source import Bundle
from qwenlab.gateway.certificate import joined
from qwenlab.gateway.certificate import problems as certificate_problems
from qwenlab.operations.host import refuse
from qwenlab.settings import Settings, SettingsError, SettingsProblem, load
from qwenlab.settings.files import secret_of, text_of
from qwenlab.settings.origin import Layer, group_file, inventory_argument, places
from qwenlab.settings.service import LEAST_KEY


@dataclass(frozen=True)
class Secrets:
    """What must never be shown: kept apart from settings so that nothing prints it by accident."""

    api_key: str | None = None
    hub_token: str | None = None
    gateway_pem: str | None = None

    def __repr__(self) -> str:
        return "Secrets(...)"


@dataclass(frozen=True)
class Desired:
    """What one host shall be: settings, secrets, certificates by file name, and the bundle that is used alone."""

    settings: Settings
    secrets: Secrets
    certificates: Mapping[str, str]
    bundle: Bundle | None = None


def load_for_host(serving: bool = True) -> Desired | None:
    """The settings of the current host; None when they are wrong, and then the host is refused at its first step.

    With `serving`, also None for a host that is there for monitoring alone.

    Never raises: an exception in deploy code would stop the whole fleet.
    """
    where = places(_layers())
    try:
        settings = load(host.data.dict(), where)
        secrets = Secrets(
            api_key=secret_of(settings.api_key, settings.api_key_file, "qwen_api_key_file", where, LEAST_KEY),
            hub_token=secret_of(settings.hub_token, settings.hub_token_file, "qwen_hub_token_file", where)
            or own_login(settings.hub_endpoint),
            gateway_pem=_pair(settings, where),
        )
        certificates = {
            Path(path).stem: text_of(path, "qwen_extra_ca_certificates", where)
            for path in settings.extra_ca_certificates
        }
    except SettingsError as error:
        for problem in error.problems:
            host.log_styled(f"wrong setting: {problem}", fg="red", log_func=logger.error)
        refuse(
            name="Refuse hosts with wrong settings",
            reasons=tuple(f"wrong setting: {problem}" for problem in error.problems),
            _sudo=False,
        )
        return None
    return None if serving and not settings.serve else Desired(settings, secrets, certificates)


def own_login(endpoint: str) -> str | None:
    """The person's own token: HF_TOKEN, or what `hf auth login` stored; only for the hub that it belongs to.

    A token goes to no other hub than the one that the person's own tools use (HF_ENDPOINT), or huggingface.co.
    """
    home = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    return get_token() if endpoint == home else None


def _layers() -> list[Layer]:
    """pyinfra's layers of data, strongest first, each with the place that a person edits."""
    given = inventory_argument(sys.argv[1:])
    folders = [Path(state.cwd or "."), Path(given).parent]
    groups: list[Layer] = [
        (group_file(group, folders, given), inventory.get_group_data(group)) for group in reversed(host.groups)
    ]
    return [
        ("--data on the command line", inventory.get_override_data()),
        (given, host.host_data),
        *groups,
        (group_file("all", folders, given), inventory.get_data()),
    ]


def _pair(settings: Settings, where: Mapping[str, str]) -> str | None:
    """The gateway's certificate and key, when they are given and good."""
    if settings.gateway_certificate is None or settings.gateway_key is None:
        return None
    keys = ("qwen_gateway_certificate", "qwen_gateway_key")
    paths = (settings.gateway_certificate, settings.gateway_key)
    certificate, key = (text_of(path, name, where).encode() for path, name in zip(paths, keys, strict=True))
    if found := certificate_problems(certificate, key, datetime.now(UTC)):
        raise SettingsError(
            [
                SettingsProblem(keys[one.of_key], f"{paths[one.of_key]}: {one.text}", where.get(keys[one.of_key]))
                for one in found
            ]
        )
    return joined(certificate, key)
