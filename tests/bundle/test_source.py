"""A bundle as a deploy's one source: which hosts it fits, and what of it a host needs."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from pydantic import ValidationError

from qwenlab.bundle.manifest import BundledFile, BundleError, LeftOut, Manifest
from qwenlab.bundle.source import (
    ON_REQUEST,
    Bundle,
    Lacking,
    Target,
    deb_names,
    model_directory,
    needed,
    oldest_glibc,
    requirements,
    unfit,
)
from qwenlab.engine.pins import pins
from qwenlab.engine.release import PythonChoice, build_job, bundle_steps, release_id, uv_job
from qwenlab.planner.plan import Checkpoint
from qwenlab.remote.checkpoint.offline import layouts
from qwenlab.settings import load

RELEASE = pins().release("cpu")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
PATHS = (
    "uv/uv-0.13.9-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "wheels/torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
    "wheels/typing_extensions-4.16.0-py3-none-any.whl",
    "debs/libnuma1_2.0.16-1_amd64.deb",
    "kernels/kernels.json",
    "kernels/topk/topk.so",
    f"models/lab/tiny/{COMMIT}/config.json",
    f"models/lab/tiny/{COMMIT}/model.safetensors",
    "models/lab/other/config.json",
    "requirements.txt",
)
TARGET = Target("x86_64", 36, ("3.11",))


def file(path: str) -> BundledFile:
    return BundledFile(path=path, sha256=sha256(path.encode()).hexdigest(), size=len(path))


def bundle(paths: tuple[str, ...] = PATHS, kernels: dict[str, Any] | None = None, **more: Any) -> Bundle:
    """A bundle of the cpu engine for Python 3.11."""
    given = {
        "qwenlab": "0.1.0",
        "engine": "cpu",
        "vllm": RELEASE.vllm,
        "python": "3.11",
        "platform": "manylinux_2_35_x86_64",
        "lock_sha256": sha256(RELEASE.lock().encode()).hexdigest(),
        "files": tuple(map(file, paths)),
        **more,
    }
    return Bundle(Manifest(**given), "/opt/qwen/bundle", kernels=kernels or {"flashinfer": RELEASE.flashinfer})


def test_requirements_are_the_manifests_own_digests() -> None:
    """A wheel that was written anew (to be cut into pieces) has another digest than the lock says."""
    torch, typing = (file(path).sha256 for path in PATHS[1:3])
    assert requirements(bundle().manifest) == (
        f"torch==2.13.0+cpu --hash=sha256:{torch}\ntyping-extensions==4.16.0 --hash=sha256:{typing}\n"
    )


def test_what_is_no_wheel_among_the_wheels_is_named() -> None:
    with pytest.raises(BundleError, match="wheels/README is no wheel"):
        requirements(bundle(("wheels/README",)).manifest)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "wheels/../../x", "", "a\nb"])
def test_a_manifest_names_nothing_outside_its_bundle(path: str) -> None:
    with pytest.raises(ValidationError, match="does not lie below"):
        file(path)


def test_a_fitting_bundle_has_nothing_against_it() -> None:
    assert unfit(bundle(), RELEASE, None, TARGET) == []
    assert unfit(bundle(), RELEASE, "3.11", TARGET) == []


@pytest.mark.parametrize(
    ("made", "target", "python", "words"),
    [
        (bundle(vllm="0.33.0"), TARGET, None, ["holds vLLM 0.33.0 (cpu)", "ask for 0.32.0 (cpu)", "--engine cpu"]),
        (bundle(engine="cuda"), TARGET, None, ["0.32.0 (cuda)", "qwen_engine"]),
        (bundle(lock_sha256="0" * 64, qwenlab="0.0.9"), TARGET, None, ["another lock", "by qwenlab 0.0.9"]),
        (bundle(), Target("aarch64", 36, ("3.11",)), None, ["is for x86_64", "processor is aarch64"]),
        (bundle(platform="manylinux_2_39_aarch64"), TARGET, None, ["is for aarch64", "processor is x86_64"]),
        (bundle(), TARGET, "3.12", ["is for Python 3.11", "qwen_python asks for 3.12", "--python 3.12"]),
        (bundle(), Target("x86_64", 36, ("3.13",)), None, ["Python 3.11", "host has 3.13", "--with-python"]),
        (bundle(), Target("x86_64", 36, ()), None, ["the host has none"]),
        (
            bundle(),
            Target("x86_64", 27, ("3.11",)),
            None,
            ["torch-2.13.0+cpu", "needs glibc 2.28", "has 2.27", "--glibc 27"],
        ),
        (bundle(kernels={"flashinfer": "0.6"}), TARGET, None, ["built for FlashInfer 0.6"]),
        (
            bundle(left_out=(LeftOut(name="numpy", version="2.3.5", target_has="2.3.5", why="the target has it"),)),
            Target("x86_64", 36, ("3.11",), {"numpy": "2.0"}),
            None,
            ["numpy 2.3.5 (2.0 there)", "--have"],
        ),
    ],
    ids=[
        *("vllm", "engine", "lock", "processor", "platform", "qwen_python", "python", "no python", "glibc"),
        *("kernels", "borrowed"),
    ],
)
def test_an_unfit_bundle_is_refused_with_what_to_do(
    made: Bundle, target: Target, python: str | None, words: list[str]
) -> None:
    (text,) = unfit(made, RELEASE, python, target)
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("made", "target"),
    [
        (bundle((*PATHS, "python/20261110/cpython-3.11.tar.gz")), Target("x86_64", 36, ("3.13",))),
        (bundle(), Target("x86_64", None, ("3.11",))),
        (bundle(), Target("x86_64", 28, ("3.11",))),
        (bundle(tuple(path for path in PATHS if "kernels" not in path), {"flashinfer": "0.6"}), TARGET),
        (bundle(left_out=(LeftOut(name="ray", version="2.0", why=ON_REQUEST),)), TARGET),
        (
            bundle(left_out=(LeftOut(name="numpy", version="2.3.5", target_has="2.3.5", why="the target has it"),)),
            Target("x86_64", 36, ("3.11",), {"numpy": "2.3.5"}),
        ),
    ],
    ids=["carries python", "glibc unknown", "glibc just enough", "no kernels", "left on request", "borrowed is there"],
)
def test_what_does_not_matter_is_not_held_against_it(made: Bundle, target: Target) -> None:
    assert unfit(made, RELEASE, None, target) == []


@pytest.mark.parametrize(
    ("wheel", "minor"),
    [
        ("a-1-py3-none-any.whl", 0),
        ("a-1-cp311-cp311-manylinux_2_34_x86_64.whl", 34),
        ("a-1-cp311-cp311-manylinux2014_x86_64.manylinux_2_28_x86_64.whl", 17),
        ("a-1-cp311-cp311-manylinux1_x86_64.manylinux_2_5_x86_64.whl", 5),
        ("a-1-cp311-cp311-linux_x86_64.whl", 0),
    ],
)
def test_the_oldest_glibc_of_a_wheel(wheel: str, minor: int) -> None:
    assert oldest_glibc(f"wheels/{wheel}") == minor


@pytest.mark.parametrize(
    ("lacking", "places", "found"),
    [
        (Lacking(), [], []),
        (Lacking(uv=True), [], [0]),
        (Lacking(release=True), [], [1, 2, 4, 5]),
        (Lacking(debs=("libnuma1",)), [], [3]),
        (Lacking(), [f"models/lab/tiny/{COMMIT}/"], [6, 7]),
        (Lacking(python=True), [], []),  # no release is to be built, so no interpreter is needed
    ],
)
def test_a_host_is_brought_what_it_lacks_and_no_more(lacking: Lacking, places: list[str], found: list[int]) -> None:
    assert [one.path for one in needed(bundle(), lacking, places)] == [PATHS[index] for index in found]


@pytest.mark.parametrize(
    ("repo", "revision", "place"),
    [
        ("lab/tiny", COMMIT, f"models/lab/tiny/{COMMIT}/"),
        ("lab/tiny", "0" * 40, None),
        ("lab/other", COMMIT, "models/lab/other/"),
        ("lab/none", COMMIT, None),
    ],
)
def test_a_checkpoint_is_found_by_its_commit(repo: str, revision: str, place: str | None) -> None:
    one = Checkpoint(repo=repo, revision=revision, format="bf16")
    assert model_directory(bundle().manifest, one, layouts(repo, revision)) == place


def test_debian_packages_by_name() -> None:
    assert deb_names(bundle()) == {"libnuma1": PATHS[3]}


CPU = load({"qwen_engine": "cpu", "qwen_cpu_checkpoint": "lab/tiny", "qwen_cpu_revision": COMMIT})
PYTHON = PythonChoice("3.11", "/usr/bin/python3")


def test_a_build_from_a_bundle_asks_no_network() -> None:
    job = build_job(CPU, PYTHON, (), bundle())
    assert (job["offline"], job["find_links"], job["system_packages"]) == (True, ["/opt/qwen/bundle/wheels/"], False)
    assert job["environment"]["UV_OFFLINE"] == "1"
    assert job["environment"]["UV_PYTHON_DOWNLOADS"] == "never"
    assert "sha256:" + file(PATHS[1]).sha256 in job["lock"]
    uv = uv_job(CPU, "x86_64", bundle())
    assert (uv["index"], uv["folder"]) == (None, "/opt/qwen/bundle/uv")


def test_a_python_in_the_bundle_is_where_uv_looks() -> None:
    job = build_job(CPU, PYTHON, (), bundle((*PATHS, "python/20261110/cpython-3.11.tar.gz")))
    assert job["environment"]["UV_PYTHON_INSTALL_MIRROR"] == "file:///opt/qwen/bundle/python"
    assert "UV_OFFLINE" not in job["environment"]


def test_the_same_wheels_from_a_bundle_or_an_index_are_the_same_release() -> None:
    plain = bundle(plain_paths())
    assert bundle_steps(plain) == ()
    left = LeftOut(name="numpy", version="2.3.5", target_has="2.3.5", why="the target has it")
    others = [bundle(), bundle(plain_paths(), trimmed=("a/x",)), bundle(plain_paths(), left_out=(left,))]
    ids = {release_id(CPU, PYTHON, bundle_steps(one)) for one in (plain, *others)}
    assert len(ids) == 4
    assert release_id(CPU, PYTHON, ()) in ids
    assert build_job(CPU, PYTHON, (), others[-1])["system_packages"] is True


def plain_paths() -> tuple[str, ...]:
    """Without kernels."""
    return tuple(path for path in PATHS if "kernels" not in path)


def test_the_kernels_step_names_every_file_with_its_digest() -> None:
    (step,) = bundle_steps(bundle())
    assert json.loads(step.files["prebuilt_kernels.json"]) == {path: file(path).sha256 for path in PATHS[4:6]}
