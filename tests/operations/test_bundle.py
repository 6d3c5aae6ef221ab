"""What a deploy from a bundle would do on a host: refuse it, check or carry what it lacks, and tidy up."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from qwenlab.bundle.manifest import MANIFEST, Manifest, describe
from qwenlab.bundle.source import Bundle
from qwenlab.engine.pins import pins
from qwenlab.engine.release import PythonChoice, pinned_steps, release_id
from qwenlab.operations import bundle as operations
from qwenlab.operations import host
from qwenlab.settings import Settings
from tests.operations.fake import Answer, commands
from tests.operations.test_operations import FIT, REVISION, settings

PLACE = "/opt/qwen/bundle"
RELEASE = pins().release("cpu")
PACKAGES = ("ca-certificates", "libnuma1")
BARE: dict[Any, Answer] = {
    "/etc/os-release": FIT,  # first: its question asks `uname -m` too
    "releases/*/release.json": ["uv=", "python=/usr/bin/python3 3.11", "current="],
    "GNU_LIBC_VERSION": ["glibc=2.36"],
    "uname -m": "x86_64",
    "dpkg -l": ["ii  ca-certificates  2023 all x"],
}


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """A bundle on the control machine that fits the bare host."""
    for name in (
        *("uv/uv.whl", "wheels/torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"),
        *("debs/libnuma1_2.0.16-1_amd64.deb", f"models/lab/tiny/{REVISION}/config.json"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    manifest = Manifest(
        qwenlab="0.1.0",
        engine="cpu",
        vllm=RELEASE.vllm,
        python="3.11",
        platform="manylinux_2_35_x86_64",
        lock_sha256=sha256(RELEASE.lock().encode()).hexdigest(),
        files=describe(tmp_path),
    )
    (tmp_path / MANIFEST).write_text(manifest.model_dump_json())
    return Bundle(manifest, PLACE, tmp_path)


def offline(**more: Any) -> Settings:
    """Settings as they are once the bundle was read."""
    return settings(offline="b", python="3.11", model_source="path", model_path=f"{PLACE}/models", **more)


def run(operation: Any, bundle: Bundle, answers: dict[Any, Answer], chosen: Settings | None = None) -> list[Any]:
    """The operation's commands; what is not refused is a function with its arguments."""
    given = chosen or offline()
    steps = pinned_steps(given)
    return commands(operation, answers, settings=given, bundle=bundle, steps=steps, packages=PACKAGES)


def test_a_fitting_bundle_passes_without_a_command(bundle: Bundle) -> None:
    assert run(operations.check, bundle, BARE) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"GNU_LIBC_VERSION": ["glibc=2.27"]}, "needs glibc 2.28"),
        ({"uname -m": "aarch64"}, "processor is aarch64"),
        ({"dpkg -l": ["ii  libnuma1  2 amd64 x"]}, "ca-certificates"),
        ({"/etc/os-release": [line.replace("104857600", "1000") for line in FIT]}, "too little disk"),
    ],
    ids=["glibc", "processor", "packages", "disk"],
)
def test_an_unfit_host_is_refused(bundle: Bundle, change: dict[Any, Answer], words: str) -> None:
    ((kind, reasons),) = run(operations.check, bundle, {**BARE, **change})
    assert kind == "refused"
    assert words in reasons


def test_packages_that_no_bundle_brings_must_be_there(bundle: Bundle) -> None:
    given = {"settings": offline(), "bundle": bundle, "steps": pinned_steps(offline()), "packages": PACKAGES}
    ((kind, reasons),) = commands(operations.check, BARE, **given, by_hand=("prometheus-node-exporter",))
    assert kind == "refused"
    assert "prometheus-node-exporter, which no bundle brings" in reasons
    assert commands(operations.check, BARE, **given, by_hand=("ca-certificates",)) == []


def test_another_checkpoint_than_the_bundles_is_refused_unless_it_comes_from_elsewhere(bundle: Bundle) -> None:
    other = offline(cpu_revision="f" * 40)
    ((kind, reasons),) = run(operations.check, bundle, BARE, other)
    assert kind == "refused"
    assert f"lab/tiny at commit {'f' * 40}, which the bundle lacks (it has lab/tiny)" in reasons
    elsewhere = other.model_copy(update={"model_path": "/mnt/models"})
    assert run(operations.check, bundle, BARE, elsewhere) == []


def test_damage_is_refused_before_anything_is_carried(bundle: Bundle) -> None:
    assert bundle.local is not None
    (bundle.local / "uv/uv.whl").write_text("UV/uv.whl")
    ((kind, reasons),) = run(operations.check, bundle, BARE)
    assert (kind, reasons) == (
        "refused",
        f"{bundle.local}/uv/uv.whl: its content is not what the manifest says",
    )


def test_what_a_served_host_needs_is_nothing(bundle: Bundle) -> None:
    chosen = offline()
    name = release_id(chosen, PythonChoice("3.11", "/usr/bin/python3"), pinned_steps(chosen))
    directory = f"/srv/qwen/models/lab/tiny/{REVISION}"
    state = {directory: {"whole": True, "wrong": [], "manifest": None}}
    served: dict[Any, Answer] = {
        **BARE,
        "releases/*/release.json": [
            f"uv={pins().uv.version}",
            "python=/usr/bin/python3 3.11",
            f"current=releases/{name}",
            f"complete=5 {name}",
        ],
        "dpkg -l": [f"ii  {package}  1 amd64 x" for package in PACKAGES],
        "checkpoint/verify.py": json.dumps(state),
    }
    need_nothing = (operations.check, operations.carry)
    assert [run(operation, bundle, served) for operation in need_nothing] == [[], []]
    # and then a bundle that was damaged or is away since does not matter
    assert bundle.local is not None
    (bundle.local / "uv/uv.whl").unlink()
    assert [run(operation, bundle, served) for operation in need_nothing] == [[], []]


def test_a_bundle_on_the_host_must_be_whole_there(bundle: Bundle) -> None:
    there = Bundle(bundle.manifest, "/mnt/b")
    chosen = offline().model_copy(update={"model_path": "/mnt/b/models"})
    ((kind, reasons),) = run(operations.check, there, BARE, chosen)
    assert kind == "refused"
    assert "/mnt/b/uv/uv.whl is missing, or has another size" in reasons
    listing = [f"file={file.size} {file.path}" for file in bundle.manifest.files]
    assert run(operations.check, there, {**BARE, "find /mnt/b": listing}, chosen) == [("check", "")]
    assert run(operations.carry, there, BARE, chosen) == []


def test_packages_come_from_the_bundle_and_no_index_is_asked() -> None:
    debs = {"libnuma1": f"{PLACE}/debs/libnuma1_2.0.16-1_amd64.deb", "gcc": f"{PLACE}/debs/gcc_4_amd64.deb"}
    there = {"dpkg -l": ["ii  gcc  4:12 amd64 x"]}
    ((command, _),) = commands(host.packages, there, names=("gcc", "libnuma1"), lock_timeout_s=5, debs=debs)
    assert debs["libnuma1"] in command
    assert "sourcelist=/dev/null" in command
    assert "--no-download" not in command  # apt would give up: it counts a local file among what it has to fetch
    assert debs["gcc"] not in command
    assert " update" not in command
    ((kind, reasons),) = commands(host.packages, {}, names=("libc6-dev",), lock_timeout_s=5, debs=debs)
    assert (kind, reasons) == (
        "refused",
        "there is no network (qwen_offline), and these packages are missing: libc6-dev",
    )


def test_what_was_carried_is_removed_and_a_bundle_of_the_hosts_own_never(bundle: Bundle) -> None:
    listing: dict[Any, Answer] = {f"find {PLACE}": ["file=5 bundle.json"], "find /mnt/b": ["file=5 bundle.json"]}
    assert commands(operations.tidy, listing, bundle=bundle) == [(f"rm -rf {PLACE}", "")]
    assert commands(operations.tidy, {}, bundle=bundle) == []
    assert commands(operations.tidy, listing, bundle=Bundle(bundle.manifest, "/mnt/b")) == []
