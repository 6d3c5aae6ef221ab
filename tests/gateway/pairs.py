"""Certificates and keys for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from qwenlab.gateway.certificate import general_names

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def pair(
    *names: str, start: datetime = NOW - timedelta(days=1), days: int = 90, password: bytes | None = None
) -> tuple[bytes, bytes]:
    """A self-signed certificate for these names, and its key; PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab")])
    certificate = (
        x509.CertificateBuilder()
        .issuer_name(subject)
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(general_names(names or ("rack1",))), critical=False)
        .sign(key, SHA256())
    )
    how: KeySerializationEncryption = BestAvailableEncryption(password) if password else NoEncryption()
    return certificate.public_bytes(Encoding.PEM), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)
