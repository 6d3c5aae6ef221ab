"""What a source says that a checkpoint consists of."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import quote

from huggingface_hub import HfApi

from qwenlab.remote.checkpoint.download import Patience
from qwenlab.remote.checkpoint.files import FileEntry, inside
from qwenlab.remote.checkpoint.job import Job
from qwenlab.remote.checkpoint.words import FetchError

NOT_NEEDED = (
    # an engine never reads these
    "*.md",
    "*.gguf",
    "*.onnx",
    "*.png",
    "*.jpg",
    "*.jpeg",
    "*.gif",
    "*.svg",
    "*.mp4",
    "*.pdf",
    ".gitattributes",
    ".gitignore",
    "original/*",
    "consolidated*",
)
SMALL = 64 << 20  # bytes; the largest tokenizers have a third of it
BESIDE_SAFETENSORS = ("*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack")  # the same weights in older forms


@dataclass(frozen=True)
class Listing:
    """Files of one commit, and where each is asked for."""

    commit: str
    files: tuple[FileEntry, ...]
    base: str

    def url(self, entry: FileEntry) -> str:
        """Address of a file."""
        return f"{self.base}/{quote(entry.path)}"


def needed(files: Iterable[FileEntry]) -> tuple[FileEntry, ...]:
    """Those that an engine reads: small ones first, so that a refusal comes before the first big one."""
    listed = list(files)
    safe = any(entry.path.endswith(".safetensors") for entry in listed)
    left_out = (*NOT_NEEDED, *(BESIDE_SAFETENSORS if safe else ()))
    kept = [entry for entry in listed if not any(fnmatch(entry.path, pattern) for pattern in left_out)]
    return tuple(sorted(kept, key=lambda entry: (entry.path != "config.json", entry.size, entry.path)))


def without_weights(listing: Listing) -> Listing:
    """The files that say what a model is: what weights have the size of stays away, whatever it is called."""
    weights = ("*.safetensors", *BESIDE_SAFETENSORS)
    small = [
        entry for entry in listing.files if entry.size <= SMALL and not any(fnmatch(entry.path, one) for one in weights)
    ]
    return replace(listing, files=tuple(small))


def from_hub(job: Job, patience: Patience) -> Listing:
    """Ask the hub for the commit and its files. Raises huggingface_hub's errors."""
    api = HfApi(endpoint=job.endpoint, token=job.token or False)
    info = patience.persist(lambda: api.model_info(job.repo, revision=job.revision, files_metadata=True, timeout=60))
    files = []
    for sibling in info.siblings or []:
        lfs = sibling.lfs
        size = lfs.size if lfs else sibling.size
        if size is None or (lfs is None and sibling.blob_id is None):
            raise FetchError(f"{job.endpoint} gives no size or digest of {sibling.rfilename}: it is no usable hub.")
        files.append(FileEntry(sibling.rfilename, size, lfs.sha256 if lfs else None, None if lfs else sibling.blob_id))
    if info.sha is None:
        raise FetchError(f"{job.endpoint} names no commit for {job.repo}@{job.revision}: it is no usable hub.")
    return Listing(info.sha, needed(files), f"{job.endpoint}/{job.repo}/resolve/{info.sha}")


def from_peer(job: Job) -> Listing:
    """What the peer has verified, as the control machine has read it there: a peer's word is not taken for it."""
    if job.manifest is None:
        raise FetchError("no manifest of the peer came with the job: deploy again.")
    files = tuple(FileEntry.from_dict(entry) for entry in job.manifest["files"])
    commit = job.manifest["revision"]
    return Listing(commit, files, f"{job.endpoint}/{job.repo}/{Path(job.directory).name}")


QUANTIZATION = {
    # catalogue format -> (quant_method, bits of packed integers) that config.json must name
    "int4-autoround": (("compressed-tensors", "auto-round"), 4),
    "int4-autoround-prepared": (("compressed-tensors", "auto-round"), 4),
    "w4a16": (("compressed-tensors", "auto-round", "gptq", "awq"), 4),
    "w8a16": (("compressed-tensors",), 8),
    "fp8": (("fp8", "compressed-tensors"), 8),
    "nvfp4": (("modelopt", "modelopt_fp4", "modelopt_mixed", "compressed-tensors"), 4),
    "bf16": ((None,), None),
    "fp8-channel": ((None,), None),  # quantised while vLLM loads it
}


def check_format(config: Path, wanted: str | None, repo: str) -> None:
    """Hold config.json against the format that the plan counts on: cards and memory were planned for that one.

    Raises:
        FetchError: another quantization, or no config.json that can be read.
    """
    try:
        document: dict[str, Any] = json.loads(config.read_text())
    except (OSError, ValueError) as error:
        raise FetchError(f"its config.json cannot be read ({error}): {repo} is no checkpoint.") from error
    if wanted not in QUANTIZATION:
        return
    methods, bits = QUANTIZATION[wanted]
    quantization = document.get("quantization_config") or {}
    method = quantization.get("quant_method")
    groups = quantization.get("config_groups") or {}
    found = {group["weights"].get("num_bits") for group in groups.values() if group.get("weights")}
    found |= {quantization["bits"]} if "bits" in quantization else set()
    if method not in methods or (bits is not None and found and bits not in found):
        has = f"{method or 'no quantization'}" + (f" with {sorted(found)} bits" if found else "")
        raise FetchError(
            f"it is not in the format {wanted!r} that the plan counts on, its config.json says {has}: "
            "choose another checkpoint (qwen_checkpoint); nothing but small files was fetched."
        )


def free_space_problem(missing: int, free: int, models: Path) -> str | None:
    """Words when the disk cannot take what is missing plus a margin of 2 %, at least 64 MiB."""
    need = missing + max(missing // 50, 64 << 20)
    if not missing or free >= need:
        return None
    return (
        f"the disk below {models} is full or will be: {free / 2**30:.2f} GiB are free and {need / 2**30:.2f} GiB are "
        "needed; free room (plays/prune.py shows what no plan uses) or change qwen_model_directory, then deploy again."
    )


def place_of(directory: Path, entry: FileEntry) -> Path:
    """Where a file lies; a name that leads out of the directory is refused."""
    try:
        return inside(directory, entry.path)
    except ValueError as error:
        raise FetchError(f"its source names a file outside the checkpoint: {error}.") from None
