"""The table of pins (`pins.yaml`): which vLLM releases qwenlab builds, from what, for which Pythons."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import Field, model_validator

from qwenlab.record import Record

Engine = Literal["cuda", "cpu"]


class Wheel(Record):
    """One file on a package index."""

    file: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class UvPin(Record):
    """The pinned uv: one wheel a machine architecture (as `uname -m` names it)."""

    version: str
    wheels: dict[str, Wheel]


class OffIndexPackage(Record):
    """A package whose wheels are not on PyPI; `needs` are its own requirements, one digest a wheel."""

    name: str
    version: str
    needs: tuple[str, ...]
    sha256: tuple[str, ...]


class EngineRelease(Record):
    """One vLLM release that qwenlab can build.

    Attributes:
        requirements: what the lock is resolved from.
        constraints: exact versions of indirect dependencies.
        pythons: minor versions, oldest first; the lock holds for each.
        release_gib: disk that a built release takes, with room for the build; GiB.
        ram_gib: memory that the host must have to serve at all; GiB.
        find_links: folders or pages that list wheels beyond the index.
        left_out: dependencies that the lock leaves out.
        steps: module of `qwenlab/engine/steps` to its purpose, run before the release counts as whole.
        distribution_alias: name of a distribution that vLLM asks for and the wheel does not bring.
    """

    engine: Engine
    vllm: str
    default: bool = False
    requirements: tuple[str, ...]
    torch: str
    flashinfer: str | None
    constraints: dict[str, str]
    architectures: tuple[str, ...]
    pythons: tuple[str, ...]
    release_gib: float
    ram_gib: float
    find_links: tuple[str, ...] = ()
    off_index: OffIndexPackage | None = None
    left_out: tuple[str, ...] = ()
    steps: dict[str, str] = Field(default_factory=dict)
    distribution_alias: str | None = None

    @property
    def lock_name(self) -> str:
        """File name of the lock below `qwenlab/engine/locks`."""
        return f"{self.engine}-{self.vllm}.txt"

    def lock(self) -> str:
        """The hash-pinned requirements that a host installs."""
        return files("qwenlab.engine").joinpath("locks", self.lock_name).read_text()


class Pins(Record):
    """The whole table."""

    uv: UvPin
    nvcc: dict[str, str]
    releases: tuple[EngineRelease, ...]

    @model_validator(mode="after")
    def _one_default_an_engine(self) -> Pins:
        for engine in {row.engine for row in self.releases}:
            if sum(row.default for row in self.releases if row.engine == engine) != 1:
                raise ValueError(f"engine {engine} needs exactly one default release")
        return self

    def versions(self, engine: Engine) -> tuple[str, ...]:
        """vLLM versions that `engine` is pinned to, default first."""
        rows = sorted((row for row in self.releases if row.engine == engine), key=lambda row: not row.default)
        return tuple(row.vllm for row in rows)

    def release(self, engine: Engine, vllm: str | None = None) -> EngineRelease:
        """The row for `engine` and `vllm` (None: the default).

        Raises:
            KeyError: no such row; the message names those that exist.
        """
        wanted = vllm or self.versions(engine)[0]
        for row in self.releases:
            if (row.engine, row.vllm) == (engine, wanted):
                return row
        raise KeyError(f"no pin for vLLM {wanted} with engine {engine}; there is {', '.join(self.versions(engine))}")


@cache
def pins() -> Pins:
    """The packaged table."""
    return Pins.model_validate(yaml.safe_load(files("qwenlab.engine").joinpath("pins.yaml").read_text()))
