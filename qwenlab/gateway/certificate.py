"""A certificate with its key, judged before a host is touched. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key


@dataclass(frozen=True)
class Problem:
    """What is wrong with a pair, and whether the certificate or the key must be mended."""

    text: str
    of_key: bool = False


def problems(certificate: bytes, key: bytes, now: datetime) -> list[Problem]:
    """Every reason against serving with this pair; empty when it is good.

    Args:
        certificate: PEM, the host's own first, then those that lead to its authority.
        key: PEM, not encrypted.
        now: with its time zone.
    """
    found: list[Problem] = []
    chain = _chain(certificate)
    if isinstance(chain, Problem):
        return [chain]
    private = _key(key)
    if isinstance(private, Problem):
        return [private]
    own = chain[0]
    if not _matches(own, private):
        later = [place for place, one in enumerate(chain, 1) if _matches(one, private)]
        hint = f": its certificate is number {later[0]} in the file, and must be the first" if later else ""
        found.append(Problem(f"the key does not belong to the certificate{hint}", of_key=not later))
    if own.not_valid_after_utc <= now:
        found.append(Problem(f"the certificate expired on {own.not_valid_after_utc:%Y-%m-%d %H:%M} UTC: renew it"))
    if own.not_valid_before_utc > now:
        found.append(Problem(f"the certificate is not valid before {own.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"))
    return found


def names(certificate: bytes) -> tuple[str, ...]:
    """DNS names and addresses that the first certificate is for."""
    own = x509.load_pem_x509_certificates(certificate)[0]
    try:
        listed = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return (
        *listed.get_values_for_type(x509.DNSName),
        *(str(address) for address in listed.get_values_for_type(x509.IPAddress)),
    )


def joined(certificate: bytes, key: bytes) -> str:
    """Certificate, chain and key in one text, as HAProxy reads them."""
    return "".join(f"{part.decode().strip()}\n" for part in (certificate, key))


def general_names(wanted: tuple[str, ...]) -> list[x509.GeneralName]:
    """Names and addresses as a certificate holds them."""
    found: list[x509.GeneralName] = []
    for name in wanted:
        try:
            found.append(x509.IPAddress(ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _chain(text: bytes) -> list[x509.Certificate] | Problem:
    try:
        return x509.load_pem_x509_certificates(text)
    except ValueError:
        return Problem("this is no certificate in PEM (-----BEGIN CERTIFICATE-----)")


def _key(text: bytes) -> PrivateKeyTypes | Problem:
    try:
        return load_pem_private_key(text, password=None)
    except TypeError:
        return Problem("the key is encrypted, and a service cannot ask for its password: openssl pkey -in KEY", True)
    except ValueError:
        return Problem("this is no private key in PEM (-----BEGIN PRIVATE KEY-----)", True)


def _matches(certificate: x509.Certificate, key: PrivateKeyTypes) -> bool:
    how = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    return certificate.public_key().public_bytes(*how) == key.public_key().public_bytes(*how)
