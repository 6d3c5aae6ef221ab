"""Settings of the service: address, port, key, patience."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Self

from pydantic import field_validator, model_validator

from qwenlab.settings.fields import LONGEST_S, SettingsGroup, plain_address, secret_problem, setting

LEAST_KEY = 8  # characters of an API key


class ServiceSettings(SettingsGroup):
    """How the engines are reached and started."""

    bind: str | None = setting(
        None, "address that the API listens on; none: all addresses with an API key, loopback without one"
    )
    port: int = setting(8000, "port of the first engine; further engines take the next ones", ge=1, le=65535)
    api_key: str | None = setting(None, "key that requests must carry; better kept in a file", secret=True)
    api_key_file: str | None = setting(None, "file on the control machine that holds the API key", min_length=1)
    generate_api_key: bool = setting(
        True, "without a key of your own: make one on the first deploy and show it once; off: no key, loopback alone"
    )
    served_model_names: list[str] = setting(["qwen"], "names under which the API offers the model", min_length=1)
    start_timeout_s: int = setting(
        1800, "how long an engine may take from start to its first answer", unit="seconds", ge=10, le=LONGEST_S
    )
    stop_timeout_s: int = setting(
        60,
        "how long answers that have begun may go on once an engine is told to stop; new requests are refused meanwhile",
        unit="seconds",
        ge=1,
        le=LONGEST_S,
    )

    gate_wait_s: int = setting(
        60,
        "how long a start waits for what may pass: a dying process that still holds a card or the port",
        unit="seconds",
        ge=0,
        le=LONGEST_S,
    )
    liveness_interval_s: int = setting(
        60, "how often a serving engine is asked for a few tokens; 0: never", unit="seconds", ge=0
    )
    liveness_limit_s: int = setting(
        300, "how long an engine may generate nothing before it is restarted", unit="seconds", ge=10, le=LONGEST_S
    )
    auto_rollback: bool = setting(
        True, "a deploy whose engines do not answer, or fail verification, brings the former release and plan back"
    )
    serial: int | None = setting(
        None,
        "hosts that a deploy restarts at the same time; when one fails, those after it are left as they serve; none: "
        "all at once",
        ge=1,
    )
    retry_failed: bool = setting(
        False, "deploy what failed on a host before and was rolled back; for one run: --data qwen_retry_failed=True"
    )
    verify: bool = setting(False, "verify every engine after each deploy, as plays/verify.py does")
    verify_limit_percent: float = setting(
        20.0, "how far a rate may fall below the last verification", unit="%", gt=0, le=100
    )
    verify_peers: bool = setting(
        False, "plays/verify.py also tests peer access between the cards, value by value, and later plans go by it"
    )
    rehearse_stop: bool = setting(
        False, "plays/rehearse.py stops what serves on the planned cards and starts it again after; off: it refuses"
    )
    calibrate_again: bool = setting(
        False, "plays/calibrate.py measures engines too whose measurement still holds: --data qwen_calibrate_again=True"
    )
    status_json: bool = setting(False, "plays/status.py prints one line of JSON a host instead of a table")
    memory_percent: int = setting(90, "share of the host's memory that all engines may use", unit="%", ge=10, le=100)
    journal_max_mib: int = setting(2048, "disk that the host's logs may take", unit="MiB", ge=64, le=16_777_216)

    @property
    def has_key(self) -> bool:
        """Whether requests need a key."""
        return self.own_key or self.generate_api_key

    @property
    def own_key(self) -> bool:
        """Whether the settings name the key; otherwise the host's is made on the first deploy."""
        return self.api_key is not None or self.api_key_file is not None

    @property
    def bind_address(self) -> str:
        """The address to listen on."""
        return self.bind or ("0.0.0.0" if self.has_key else "127.0.0.1")

    @field_validator("served_model_names")
    @classmethod
    def _are_names(cls, names: list[str]) -> list[str]:
        for name in names:
            if not name or any(letter.isspace() for letter in name):
                raise ValueError(f"{name!r} is no model name: at least one character, no spaces")
        return names

    @field_validator("bind")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None:
            plain_address(value)
        return value

    @field_validator("api_key")
    @classmethod
    def _key_fits_a_header(cls, key: str | None) -> str | None:
        if key is not None and (problem := secret_problem(key, LEAST_KEY)):
            raise ValueError(problem)
        return key

    @model_validator(mode="after")
    def _keyed_beyond_loopback(self) -> Self:
        if self.api_key is not None and self.api_key_file is not None:
            raise ValueError("qwen_api_key and qwen_api_key_file are both set; keep one")
        if self.liveness_interval_s >= self.liveness_limit_s:
            raise ValueError(
                f"qwen_liveness_interval_s = {self.liveness_interval_s} must be below qwen_liveness_limit_s = "
                f"{self.liveness_limit_s}: an engine asked less often than that would be restarted in good health"
            )
        if not self.has_key and not ip_address(self.bind_address).is_loopback:
            raise ValueError(
                f"qwen_bind = {self.bind!r} would answer anybody: leave qwen_generate_api_key on, set "
                "qwen_api_key_file, or leave qwen_bind out to listen on 127.0.0.1"
            )
        return self
