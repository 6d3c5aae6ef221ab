"""What to say when a checkpoint cannot be fetched: the reason, and what its owner can do."""

from __future__ import annotations

import errno
import ssl
import urllib.error
from pathlib import Path

from huggingface_hub.errors import LocalEntryNotFoundError

from qwenlab.remote.checkpoint.access import explain_access
from qwenlab.remote.checkpoint.job import Job
from qwenlab.remote.checkpoint.refusals import Refusal, causes, refusal_of


class FetchError(Exception):
    """A failure whose words are made already."""


class DigestError(FetchError):
    """A file arrived with another content than its source announced."""


BY_ERRNO = {
    errno.ENOSPC: "the disk below {models} is full: free room or change qwen_model_directory, then deploy again; "
    "what is fetched is kept.",
    errno.EDQUOT: "the quota of the disk below {models} is used up: raise it or change qwen_model_directory.",
    errno.EROFS: "{models} is read-only: mount it writable (after a disk error see dmesg) or change "
    "qwen_model_directory.",
    errno.EACCES: "the service user may not write below {models}: give it the directory (chown) or change "
    "qwen_model_directory.",
    errno.EIO: "the disk below {models} reports an error: look at dmesg on the host.",
}
UNREACHABLE = (LocalEntryNotFoundError, urllib.error.URLError, ConnectionError, TimeoutError)
PEER = (
    "the peer at {peer} refuses (HTTP {status}): it serves what the deploy's hosts need, to the addresses of their own "
    "interfaces. Where this host is seen under another address (NAT), set qwen_model_source = 'hub' for it."
)
CERTIFICATE = (
    "the certificate of {hub} is not trusted on this host: where a company's proxy signs anew, name its authority in "
    "qwen_extra_ca_certificates ({error})."
)


def explain(error: BaseException, job: Job) -> str:
    """The reason in words, with what to do; looks through the errors that caused this one."""
    models = Path(job.directory).parent
    for one in causes(error):
        if isinstance(one, FetchError):
            return str(one)
        if (refusal := refusal_of(one)) is not None:
            if job.source == "peer":
                return PEER.format(peer=job.endpoint, status=refusal.status)
            return explain_access(refusal, job) or explain_answer(refusal, job)
        if isinstance(one, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(one):
            return CERTIFICATE.format(hub=job.endpoint, error=one)
        if isinstance(one, OSError) and one.errno in BY_ERRNO:
            return BY_ERRNO[one.errno].format(models=models)
    if any(isinstance(one, UNREACHABLE) or type(one).__name__ == "ConnectError" for one in causes(error)):
        return (
            f"{job.endpoint} cannot be reached from this host: check qwen_hub_endpoint and qwen_https_proxy, then "
            f"deploy again; what is fetched is kept ({error})."
        )
    return f"{type(error).__name__}: {error}"


def explain_answer(refusal: Refusal, job: Job) -> str:
    """Words for an answer that is not about who asks."""
    hub, status = job.endpoint, refusal.status
    if refusal.code == "RevisionNotFound":
        return (
            f"{hub}/{job.repo} has no such commit, compare with {hub}/{job.repo}/commits/main: its owner may have "
            "written the history anew. Choose another checkpoint (qwen_checkpoint, or qwen_cpu_revision)."
        )
    if refusal.storage is not None and status in (401, 403, 404):
        return (
            f"the hub's storage at {refusal.storage} refuses (HTTP {status}): does a proxy or a firewall stand in "
            "between? No token is at fault there; deploy again, what is fetched is kept."
        )
    who = refusal.storage or hub
    if status == 429:
        return f"{who} limits the rate (HTTP 429): wait, or set qwen_hub_token_file, for accounts have higher limits."
    if status >= 500:
        return f"{who} is in trouble (HTTP {status}): deploy again later; what is fetched is kept."
    return f"{who} answers HTTP {status}" + (f": {refusal.said}" if refusal.said else ".")
