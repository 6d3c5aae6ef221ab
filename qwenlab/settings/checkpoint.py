"""Settings of the checkpoints: the hub they come from, and what the cpu engine serves."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import field_validator, model_validator

from qwenlab.settings.fields import SettingsGroup, is_reachable, plain_path, secret_problem, setting


class CheckpointSettings(SettingsGroup):
    """Where checkpoints come from."""

    hub_endpoint: str = setting("https://huggingface.co", "address of the model hub", pattern=r"^https?://\S+[^/\s]$")
    hub_token: str | None = setting(
        None, "access token for gated or private repositories; better kept in a file", secret=True
    )
    hub_token_file: str | None = setting(None, "file on the control machine that holds the access token", min_length=1)

    model_source: Literal["hub", "peer", "path"] = setting(
        "hub",
        "where checkpoints come from: `hub`; `peer`: one host fetches from the hub, the others from it; "
        "`path`: what lies at qwen_model_path",
    )
    model_path: str | None = setting(
        None, "directory or tar archive on the host that holds the checkpoints, for `path`", pattern=r"^/\S*$"
    )
    fetcher: Literal["auto", "ranges"] = setting(
        "auto",
        "how files come from the hub; `auto`: from its Xet storage where they are there, over plain HTTP otherwise; "
        "`ranges`: over plain HTTP",
    )
    verify_models: Literal["size", "digest", "off"] = setting(
        "size", "how each deploy verifies checkpoints that are there; `digest` reads every byte"
    )
    peer_port: int = setting(
        8719, "port on which a host serves checkpoints to the others while a deploy runs", ge=1024, le=65535
    )
    peer_address: str | None = setting(
        None, "address at which the other hosts reach this one; none: the one that SSH uses"
    )

    @field_validator("hub_token")
    @classmethod
    def _token_fits_a_header(cls, token: str | None) -> str | None:
        if token is not None and (problem := secret_problem(token)):
            raise ValueError(problem)
        return token

    @field_validator("model_path")
    @classmethod
    def _model_path_is_plain(cls, path: str | None) -> str | None:
        return plain_path(path)

    @field_validator("peer_address")
    @classmethod
    def _peers_can_ask(cls, name: str | None) -> str | None:
        if name is not None and not is_reachable(name):
            raise ValueError(f"{name!r} is neither a host name nor an IP address")
        return name

    @model_validator(mode="after")
    def _path_is_named(self) -> Self:
        if self.model_source == "path" and self.model_path is None:
            raise ValueError("qwen_model_source = 'path' needs qwen_model_path: where the checkpoints lie on the host")
        return self

    @model_validator(mode="after")
    def _one_token(self) -> Self:
        if self.hub_token is not None and self.hub_token_file is not None:
            raise ValueError("qwen_hub_token and qwen_hub_token_file are both set; keep one")
        return self


class CpuSettings(SettingsGroup):
    """What the cpu engine serves. It is for trying qwenlab out: a small checkpoint, no planning."""

    cpu_checkpoint: str | None = setting(
        None, "hub repository that the cpu engine serves, `owner/name`", pattern=r"^[\w.-]+/[\w.-]+$"
    )
    cpu_revision: str | None = setting(None, "commit of that repository, all 40 digits", pattern=r"^[0-9a-f]{40}$")
    cpu_engines: int = setting(1, "engines side by side, each with a port and a unit of its own", ge=1, le=16)
    cpu_context: int = setting(2048, "longest prompt and answer together", unit="tokens", ge=64, le=1_048_576)
    cpu_seats: int = setting(4, "requests answered at the same time", ge=1, le=4096)
    cpu_kv_gib: int = setting(1, "memory for the KV cache", unit="GiB", ge=1, le=4096)
