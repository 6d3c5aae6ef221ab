"""Which certificates are refused, with which words; what the lab's own authority makes, and when it makes it anew."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from qwenlab.gateway.certificate import joined, names, problems
from qwenlab.gateway.lab_ca import LabCa
from tests.gateway.pairs import NOW, pair

GOOD, OTHER = pair("rack1", "10.0.0.5"), pair()


@pytest.mark.parametrize(
    ("certificate", "key", "of_key", "words"),
    [
        (b"", GOOD[1], False, "no certificate in PEM"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", GOOD[1], False, "no certificate in PEM"),
        (GOOD[1], GOOD[1], False, "no certificate in PEM"),
        (GOOD[0], GOOD[0], True, "no private key in PEM"),
        (GOOD[0], OTHER[1], True, "the key does not belong to the certificate"),
        (OTHER[0] + GOOD[0], GOOD[1], False, "its certificate is number 2 in the file, and must be the first"),
        (GOOD[0], pair(password=b"secret")[1], True, "the key is encrypted"),
        (*pair(start=NOW - timedelta(days=91)), False, "the certificate expired on 2026-05-31 00:00 UTC: renew it"),
        (*pair(start=NOW + timedelta(days=1)), False, "is not valid before 2026-06-02 00:00 UTC"),
    ],
)
def test_a_pair_that_cannot_serve_is_named(certificate: bytes, key: bytes, of_key: bool, words: str) -> None:
    (problem,) = problems(certificate, key, NOW)
    assert words in problem.text
    assert problem.of_key is of_key


def test_a_good_pair_passes_with_its_chain() -> None:
    assert problems(GOOD[0] + OTHER[0], GOOD[1], NOW) == []
    assert names(GOOD[0]) == ("rack1", "10.0.0.5")
    assert joined(GOOD[0].strip(), GOOD[1]).encode() == GOOD[0] + GOOD[1]


WANTED = ("rack1", "10.0.0.5")


@pytest.fixture
def authority(tmp_path: Path) -> LabCa:
    """One that has given `rack1` its certificate."""
    made = LabCa(tmp_path / "ca")
    made.issue("rack1", WANTED, NOW)
    return made


def test_a_client_that_trusts_the_authority_trusts_the_host(authority: LabCa) -> None:
    text = authority.known("rack1", WANTED, NOW)
    assert text is not None
    trusted = x509.load_pem_x509_certificate((authority.folder / "ca.crt").read_bytes())
    policy = PolicyBuilder().store(Store([trusted])).time(NOW)
    for name in (x509.DNSName("rack1"), x509.IPAddress(ip_address("10.0.0.5"))):
        policy.build_server_verifier(name).verify(x509.load_pem_x509_certificate(text.encode()), [])


def test_keys_are_for_their_owner_alone(authority: LabCa) -> None:
    for name in ("ca.key", "hosts/rack1.pem"):
        assert (authority.folder / name).stat().st_mode & 0o777 == 0o600
    assert authority.folder.stat().st_mode & 0o777 == 0o700


def test_the_authority_stays_when_another_host_comes(authority: LabCa) -> None:
    before = (authority.folder / "ca.crt").read_text()
    authority.issue("rack2", ("rack2",), NOW)
    assert (authority.folder / "ca.crt").read_text() == before
    assert authority.known("rack1", WANTED, NOW) is not None
    assert authority.known("rack2", ("rack2",), NOW) is not None


@pytest.mark.parametrize(
    ("wanted", "days", "holds"),
    [
        (WANTED, 0, True),
        (("rack1",), 0, True),
        ((*WANTED, "10.0.0.6"), 0, False),
        (WANTED, 825 - 61, True),
        (WANTED, 825 - 59, False),
    ],
    ids=["same", "fewer names", "another address", "two months left", "less than two months left"],
)
def test_a_certificate_holds_for_its_names_and_its_time(
    authority: LabCa, wanted: tuple[str, ...], days: int, holds: bool
) -> None:
    assert (authority.known("rack1", wanted, NOW + timedelta(days=days)) is not None) is holds


@pytest.mark.parametrize("file", ["ca.crt", "hosts/rack1.pem"])
@pytest.mark.parametrize("content", [None, "", "damaged"])
def test_a_lost_or_damaged_file_is_no_certificate(authority: LabCa, file: str, content: str | None) -> None:
    path = authority.folder / file
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    assert authority.known("rack1", WANTED, NOW) is None


def test_another_authority_in_the_folder_means_another_certificate(authority: LabCa, tmp_path: Path) -> None:
    other = LabCa(tmp_path / "other")
    other.issue("rack1", WANTED, NOW)
    (other.folder / "ca.crt").replace(authority.folder / "ca.crt")
    assert authority.known("rack1", WANTED, NOW) is None


def test_a_host_name_cannot_leave_the_folder(authority: LabCa) -> None:
    authority.issue("../../rack9", ("localhost",), NOW)
    assert {path.name for path in (authority.folder / "hosts").iterdir()} == {"rack1.pem", ".._.._rack9.pem"}
