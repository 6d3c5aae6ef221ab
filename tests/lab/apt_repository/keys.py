"""Signing keys: a good one, one that expired, one whose binding is SHA-1. Real GnuPG, in a home of its own."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

MADE = ("--faked-system-time", "20240101T000000!")  # when the expired key was made, for 30 days


@dataclass(frozen=True)
class SigningKey:
    """One key: the GnuPG home that holds its secret, and the public key as users have it, binary and armoured."""

    home: Path
    fingerprint: str
    public: bytes
    armoured: bytes

    def sign(self, release: Path) -> None:
        """Write InRelease and Release.gpg beside a Release file."""
        for form, name in (("--clearsign", "InRelease"), ("--detach-sign", "Release.gpg")):
            target = release.with_name(name)
            target.unlink(missing_ok=True)
            use = ("--local-user", self.fingerprint, "--digest-algo", "SHA512", "--armor", "--output", str(target))
            _gpg(self.home, *use, form, str(release))


def good(home: Path) -> SigningKey:
    """Valid, bound with SHA-512."""
    return _make(home, "cudatools good", "never", ("--cert-digest-algo", "SHA512"))


def expired(home: Path) -> SigningKey:
    """What users have expired years ago; its owner prolonged it, and signs with it today."""
    key = _make(home, "cudatools expired", "30d", MADE)
    _gpg(home, "--quick-set-expire", key.fingerprint, "0")
    return key


def sha1(home: Path) -> SigningKey:
    """Its self-signature is SHA-1, like NVIDIA's key 3BF863CC: apt with sqv refuses it since 2026-02-01."""
    return _make(home, "cudatools sha1", "never", ("--cert-digest-algo", "SHA1"))


def _make(home: Path, name: str, lifetime: str, options: tuple[str, ...]) -> SigningKey:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    _gpg(home, *options, "--quick-generate-key", f"{name} <cudatools@nvidia.com>", "rsa3072", "sign", lifetime)
    listing = _gpg(home, *options, "--with-colons", "--list-keys", name).decode()
    fingerprint = next(line for line in listing.splitlines() if line.startswith("fpr:")).split(":")[9]
    public, armoured = (_gpg(home, *form, "--export", fingerprint) for form in ((), ("--armor",)))
    return SigningKey(home, fingerprint, public, armoured)


def _gpg(home: Path, *arguments: str) -> bytes:
    command = ["gpg", "--batch", "--quiet", "--no-tty", "--passphrase", "", "--pinentry-mode", "loopback"]
    done = subprocess.run([*command, "--homedir", str(home), *arguments], capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"gpg {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def stop_agent(home: Path) -> None:
    """End the agent that GnuPG started for this home."""
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], capture_output=True)
