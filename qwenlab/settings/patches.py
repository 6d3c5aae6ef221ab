"""Settings of the patch series."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from qwenlab.settings.fields import SettingsGroup, setting


class ExtraSeries(BaseModel):
    """A patch series that is not ours: a folder, or the address of an archive."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    source: str = Field(pattern=r"^(https://\S+|[^:\s][^:]*)$", description="folder, archive file or https address")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="of the archive, or of a folder's order file and diffs")
    order: str = Field(default="series", description="file that lists the diffs, one a line")


class PatchSettings(SettingsGroup):
    """What is applied to vLLM beside the series that qwenlab carries."""

    extra_patches: list[ExtraSeries] = setting(
        [], "other patch series {source, sha256, order}, applied after qwenlab's own; see docs/porting.md"
    )
