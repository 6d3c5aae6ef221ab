"""A certificate authority of the lab's own: a folder on the control machine.

    ca.crt           what clients trust
    ca.key           0600
    hosts/NAME.pem   0600, each host's certificate and key

Whoever deploys with the same folder gives the same certificates, so that a plain re-run changes nothing.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from qwenlab.gateway.certificate import general_names, joined, names, problems

AUTHORITY_DAYS = 3650
HOST_DAYS = 825  # Apple's systems take no longer one, also from an authority of one's own (support.apple.com/102028)
RENEW_BEFORE_DAYS = 60
SKEW = timedelta(hours=1)  # of a client's clock


@dataclass(frozen=True)
class LabCa:
    """The authority that lies, or shall lie, in `folder`."""

    folder: Path

    def known(self, host: str, wanted: tuple[str, ...], now: datetime) -> str | None:
        """The host's certificate, chain and key, while they hold: for every wanted name and for some time yet."""
        try:
            text = self._place(host).read_bytes()
            authority = x509.load_pem_x509_certificate((self.folder / "ca.crt").read_bytes())
            own = x509.load_pem_x509_certificates(text)[0]
            own.verify_directly_issued_by(authority)
        except (OSError, ValueError, TypeError, InvalidSignature):
            return None
        later = now + timedelta(days=RENEW_BEFORE_DAYS)
        good = not problems(text, text, later) and set(wanted) <= set(names(text))
        return text.decode() if good else None

    def issue(self, host: str, wanted: tuple[str, ...], now: datetime) -> None:
        """Make the host's certificate and key, and the authority if there is none. Raises OSError, ValueError."""
        self._open()
        authority, authority_key = self._authority(now)
        key = ec.generate_private_key(ec.SECP256R1())
        end = min(now + timedelta(days=HOST_DAYS), authority.not_valid_after_utc)
        certificate = (
            _builder(key, authority.subject, _named(wanted[0]), now - SKEW, end)
            .add_extension(x509.SubjectAlternativeName(general_names(wanted)), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
            .sign(authority_key, SHA256())
        )
        _write(self._place(host), joined(certificate.public_bytes(Encoding.PEM), _private(key)), 0o600)

    def _authority(self, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        place, key_place = self.folder / "ca.crt", self.folder / "ca.key"
        if place.exists():
            key = load_pem_private_key(key_place.read_bytes(), password=None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise ValueError(f"{key_place} is no key that was made here")
            return x509.load_pem_x509_certificate(place.read_bytes()), key
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named("qwenlab")
        usage = {"digital_signature": False, "content_commitment": False, "key_encipherment": False}
        usage |= {"data_encipherment": False, "key_agreement": False, "encipher_only": False, "decipher_only": False}
        certificate = (
            _builder(key, subject, subject, now - SKEW, now + timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True), critical=True)
            .sign(key, SHA256())
        )
        _write(key_place, _private(key).decode(), 0o600)
        _write(place, certificate.public_bytes(Encoding.PEM).decode(), 0o644)
        return certificate, key

    def _open(self) -> None:
        for folder in (self.folder, self.folder / "hosts"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _place(self, host: str) -> Path:
        return self.folder / "hosts" / f"{re.sub(r'[^A-Za-z0-9._-]', '_', host)}.pem"


def lab_ca(folder: str) -> LabCa:
    """The authority in a folder as a person writes it."""
    return LabCa(Path(folder).expanduser())


def today() -> datetime:
    """The control machine's clock."""
    return datetime.now(UTC)


def _builder(
    key: ec.EllipticCurvePrivateKey, issuer: x509.Name, subject: x509.Name, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, text: str, mode: int) -> None:
    """Under another name first, so that a cut-off run leaves no half file; never readable by others before its time."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    fresh.chmod(mode)
    fresh.replace(path)
