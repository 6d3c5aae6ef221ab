"""Which packages of a lock travel in a bundle."""

import pytest

from qwenlab.bundle.build import Target
from qwenlab.bundle.manifest import BundleError
from qwenlab.bundle.selection import Pin, parse_have, parse_lock, select

LOCK = """
# made by uv
--index-url https://pypi.org/simple
numpy==2.5.2 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
Torch_Thing[extra]==1.0+cu130 ; python_version >= "3.12"
winonly==3 ; sys_platform == "win32"
old==1 ; python_version < "3.12"
"""
TARGET = Target("3.12", glibc=39)


def test_a_lock_is_read_for_the_target_and_keeps_its_hashes() -> None:
    assert parse_lock(LOCK, TARGET.markers()) == (
        Pin("numpy", "2.5.2", ("sha256:aa", "sha256:bb")),
        Pin("torch-thing", "1.0+cu130"),
    )


@pytest.mark.parametrize("line", ["numpy>=2", "numpy", "numpy==", "-e ."])
def test_a_lock_that_does_not_pin_is_refused(line: str) -> None:
    with pytest.raises(BundleError):
        parse_lock(line, TARGET.markers())


LOCKED = (Pin("numpy", "2.5.2"), Pin("torch", "2.14.0"), Pin("vllm", "0.33.0"))


@pytest.mark.parametrize(
    ("have", "accept", "leave", "travels"),
    [
        ("", [], [], ["numpy", "torch", "vllm"]),
        ("numpy==2.5.2\n", [], [], ["torch", "vllm"]),
        ("NumPy==2.5.1\n", [], [], ["numpy", "torch", "vllm"]),
        ("torch==2.11.0\n", ["torch"], [], ["numpy", "vllm"]),
        ("", [], ["Torch"], ["numpy", "vllm"]),
        ("# comment\nbuild @ file:///x\nnumpy==2.5.2", [], [], ["torch", "vllm"]),
    ],
)
def test_only_what_the_target_lacks_travels(have: str, accept: list[str], leave: list[str], travels: list[str]) -> None:
    chosen = select(LOCKED, parse_have(have), accept, leave)
    assert [pin.name for pin in chosen.travels] == travels
    assert {out.name for out in chosen.left_out} == {pin.name for pin in LOCKED} - set(travels)
    assert all(out.why for out in chosen.left_out)


@pytest.mark.parametrize(
    ("accept", "leave", "word"),
    [
        (["torch"], [], "does not have: torch"),
        (["nope"], [], "not in the lock: nope"),
        ([], ["nope"], "not in the lock"),
    ],
)
def test_a_word_that_means_nothing_is_refused(accept: list[str], leave: list[str], word: str) -> None:
    with pytest.raises(BundleError, match=word):
        select(LOCKED, {}, accept, leave)


def test_a_target_takes_every_older_platform_but_no_newer() -> None:
    platforms = Target("3.12", glibc=35).pip_platforms()
    assert platforms[0] == "manylinux_2_35_x86_64"
    assert "manylinux_2_17_x86_64" in platforms
    assert "manylinux2014_x86_64" in platforms
    assert "manylinux_2_36_x86_64" not in platforms
