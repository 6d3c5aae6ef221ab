"""The local repository itself: layout, signatures, packages, faults. Needs dpkg-deb, apt-ftparchive and gpg."""

from __future__ import annotations

import hashlib
import http.client
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.apt_repository import Fault, RepositoryServer, Variant
from tests.lab.apt_repository.driver_packages import DEBIAN, UBUNTU, packages, pinning_packages

pytestmark = pytest.mark.lab
DEBIAN13 = "debian13/x86_64"


@pytest.fixture(scope="module")
def repository() -> Iterator[RepositoryServer]:
    with RepositoryServer(distributions=("debian13", "ubuntu2404")) as server:
        yield server


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        content: bytes = answer.read()
    return content


def _index(text: str) -> dict[tuple[str, str], dict[str, str]]:
    stanzas = [
        dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and not line.startswith(" "))
        for stanza in text.strip().split("\n\n")
    ]
    return {(stanza["Package"], stanza["Version"]): stanza for stanza in stanzas}


def _packages(repository: RepositoryServer, distribution: str) -> dict[tuple[str, str], dict[str, str]]:
    return _index(_get(f"{repository.url()}/{distribution}/x86_64/Packages").decode())


NAMES = [
    # distribution, names that a driver or toolkit installation asks for
    (
        "debian13",
        {"nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-kernel-dkms", "nvidia-open"},
    ),
    ("debian13", {"nvidia-persistenced", "nvidia-fabricmanager", "nvidia-driver-pinning-580", "cuda-keyring"}),
    ("debian13", {"cuda-toolkit-13-0", "cuda-toolkit-13-1", "libcurand-dev-13-0", "cuda-toolkit", "cuda"}),
    ("ubuntu2404", {"nvidia-open-580", "cuda-drivers-580", "nvidia-dkms-580-open", "nvidia-fabricmanager-580"}),
    (
        "ubuntu2404",
        {"nvidia-open", "cuda-drivers", "nvidia-dkms-open", "libnvidia-compute"},
    ),
]


@pytest.mark.parametrize(("distribution", "names"), NAMES)
def test_names_are_nvidias(distribution: str, names: set[str], repository: RepositoryServer) -> None:
    assert names <= {name for name, _ in _packages(repository, distribution)}


def test_every_indexed_file_has_the_digest_that_the_index_states(repository: RepositoryServer) -> None:
    base = f"{repository.url()}/{DEBIAN13}"
    for stanza in _packages(repository, "debian13").values():
        content = _get(f"{base}/{stanza['Filename'].removeprefix('./')}")
        assert hashlib.sha256(content).hexdigest() == stanza["SHA256"], stanza["Package"]


VERIFIED = [
    # variant, what GnuPG says of InRelease with the published key
    (Variant.GOOD, "GOODSIG"),
    (Variant.SHA1_KEY, "GOODSIG"),  # GnuPG still takes SHA-1; apt with sqv does not
    (Variant.EXPIRED_KEY, "EXPKEYSIG"),
    (Variant.BROKEN_MODULE, "GOODSIG"),
]


@pytest.mark.parametrize(("variant", "status"), VERIFIED)
def test_gpg_says_of_each_variants_signature_what_it_is(
    variant: Variant, status: str, repository: RepositoryServer, tmp_path: Path
) -> None:
    (tmp_path / "InRelease").write_bytes(_get(f"{repository.url(variant)}/{DEBIAN13}/InRelease"))
    (tmp_path / "key.gpg").write_bytes(repository.public_key(variant))
    command = ["gpgv", "--status-fd", "1", "--keyring", str(tmp_path / "key.gpg"), str(tmp_path / "InRelease")]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    assert f"[GNUPG:] {status} " in said
    assert repository.fingerprint(variant) in said


def test_sha1_key_is_bound_by_sha1_and_the_good_one_is_not(repository: RepositoryServer) -> None:
    def digests(variant: Variant) -> set[str]:
        command = ["gpg", "--batch", "--list-packets"]
        listing = subprocess.run(command, input=repository.public_key(variant), capture_output=True, check=True)
        return set(re.findall(r"digest algo (\d+)", listing.stdout.decode()))

    assert digests(Variant.SHA1_KEY) == {"2"}
    assert digests(Variant.GOOD) == {"10"}


def test_unsigned_variant_has_no_signature(repository: RepositoryServer) -> None:
    base = f"{repository.url(Variant.UNSIGNED)}/{DEBIAN13}"
    assert b"SHA256:" in _get(f"{base}/Release")
    for name in ("InRelease", "Release.gpg"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            _get(f"{base}/{name}")


def test_keyring_package_points_here_with_the_signing_key(repository: RepositoryServer, tmp_path: Path) -> None:
    (tmp_path / "k.deb").write_bytes(_get(f"{repository.url()}/{DEBIAN13}/cuda-keyring_1.1-1_all.deb"))
    subprocess.run(["dpkg-deb", "-x", str(tmp_path / "k.deb"), str(tmp_path / "root")], check=True)
    source = (tmp_path / "root/etc/apt/sources.list.d/cuda-debian13-x86_64.list").read_text()
    keyring = "/usr/share/keyrings/cuda-archive-keyring.gpg"
    assert source == f"deb [signed-by={keyring}] {repository.url()}/debian13/x86_64/ /\n"
    assert (tmp_path / "root" / keyring.lstrip("/")).read_bytes() == repository.public_key()
    assert b"BEGIN PGP PUBLIC KEY" in _get(f"{repository.url()}/{DEBIAN13}/8793F200.pub")


def test_metapackages_do_not_hold_a_branch(repository: RepositoryServer) -> None:
    """`nvidia-open=580...` depends on `>=`, so only a pin keeps apt from the newest branch."""
    listed = _packages(repository, "debian13")
    assert listed["nvidia-open", "580.126.09-1"]["Depends"] == "nvidia-driver-open (>= 580.126.09-1)"
    assert listed["nvidia-driver-cuda", "580.126.09-1"]["Depends"].startswith("libcuda1 (= 580.126.09-1)")
    assert listed["cuda", "13.1.1-1"]["Depends"].endswith("cuda-drivers")


def test_fabric_manager_lags_behind_in_its_variant(repository: RepositoryServer) -> None:
    listed = _index(_get(f"{repository.url(Variant.LAGGING_FABRIC_MANAGER)}/{DEBIAN13}/Packages").decode())
    versions = {version for name, version in listed if name == "nvidia-fabricmanager" and version.startswith("580")}
    assert versions == {"580.95.05-1"}
    assert ("nvidia-driver-cuda", "580.126.09-1") in listed


def test_pinning_packages_exclude_each_other_and_pin_their_version() -> None:
    pins = {package.name: package for package in pinning_packages()}
    assert all(package.relations["Conflicts"] == "nvidia-driver-pinning" for package in pins.values())
    place = "etc/apt/preferences.d/nvidia-driver-pin"
    assert b"\nPin: version 580.*\nPin-Priority: 1000\n" in pins["nvidia-driver-pinning-580"].files[place].content
    assert b"\nPin: version 595.91.07*\n" in pins["nvidia-driver-pinning-595.91.07"].files[place].content


def test_branch_is_in_ubuntu_names_up_to_580_only() -> None:
    old, new = ({package.name for package in packages(UBUNTU, version)} for version in ("580.126.09", "595.91.07"))
    assert {"nvidia-dkms-580-open", "nvidia-driver-580-open"} <= old
    assert {"nvidia-dkms-open", "nvidia-driver-open"} <= new
    assert not any("595" in name for name in new)
    assert {p.name for p in packages(DEBIAN, "580.126.09")} == {p.name for p in packages(DEBIAN, "595.91.07")}


@pytest.fixture
def faulty(repository: RepositoryServer) -> Iterator[RepositoryServer]:
    yield repository
    repository.set_faults()


def test_a_fault_strikes_as_often_as_told(faulty: RepositoryServer) -> None:
    url = f"{faulty.url()}/{DEBIAN13}/Release"
    faulty.set_faults(Fault("*/Release", times=1, status=503))
    with pytest.raises(urllib.error.HTTPError, match="503"):
        _get(url)
    assert _get(url)


def test_reset_in_the_middle_and_resume(faulty: RepositoryServer) -> None:
    url = f"{faulty.url()}/{DEBIAN13}/Packages"
    whole = _get(url)
    faulty.set_faults(Fault("*/Packages", reset_at=1000))
    with pytest.raises((ConnectionError, http.client.IncompleteRead)):
        _get(url)
    faulty.set_faults()
    rest = urllib.request.Request(url, headers={"Range": "bytes=1000-"})
    with urllib.request.urlopen(rest, timeout=10) as answer:
        assert answer.status == 206
        assert answer.read() == whole[1000:]


def test_corruption_changes_one_bit(faulty: RepositoryServer) -> None:
    url = f"{faulty.url()}/{DEBIAN13}/Packages"
    whole = _get(url)
    faulty.set_faults(Fault("*/Packages", corrupt=True))
    damaged = _get(url)
    assert sum(a != b for a, b in zip(whole, damaged, strict=True)) == 1


def test_down_refuses_connections_and_comes_back_on_the_same_port() -> None:
    with RepositoryServer(distributions=("debian13",)) as server:
        url = server.kernel_url()
        assert _get(f"{url}/Release")
        server.stop_listening()
        with pytest.raises(urllib.error.URLError):
            _get(f"{url}/Release")
        server.listen_again()
        assert _get(f"{url}/Release")


def test_nothing_outside_the_repository_is_served(repository: RepositoryServer) -> None:
    for path in ("/gnupg/pubring.kbx", "/pool", "/good/../gnupg/pubring.kbx"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            _get(repository.kernel_url().removesuffix("/kernel") + path)
