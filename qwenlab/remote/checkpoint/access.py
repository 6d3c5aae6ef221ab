"""What to say when a hub lets nobody in: by what it answered and whose token it was."""

from __future__ import annotations

from typing import Literal

from huggingface_hub import HfApi

from qwenlab.remote.checkpoint.job import Job
from qwenlab.remote.checkpoint.refusals import Refusal, refusal_of

Kind = Literal["gated", "401", "403", "404"]
Token = Literal["none", "known", "unknown"]

MAKE_ONE = "make a token at {hub}/settings/tokens and name the file that holds it in qwen_hub_token_file."
WORDS: dict[tuple[Kind, Token], str] = {
    # {hub}, {repo}, {account}
    (
        "gated",
        "none",
    ): "{repo} is gated and no token was given: accept its licence at {hub}/{repo}, make a token of the "
    "same account at {hub}/settings/tokens, and name the file that holds it in qwen_hub_token_file.",
    ("gated", "known"): "{repo} is gated and {account}, whose token was given, was not let in: accept the licence at "
    "{hub}/{repo} with that account (some owners let people in by hand, which takes a while), or give the token of an "
    "account that was let in (qwen_hub_token_file).",
    ("401", "none"): "{hub} shows it to nobody without a token (HTTP 401): either there is no {repo}, then check the "
    "name at {hub}/{repo}; or it is private, then " + MAKE_ONE,
    ("401", "known"): "{hub} refuses the token of {account} (HTTP 401): " + MAKE_ONE.replace("a token", "another", 1),
    ("403", "none"): "{hub} refuses it without a token (HTTP 403): accept the licence at {hub}/{repo} if it has one, "
    "and " + MAKE_ONE,
    ("403", "known"): "{hub} does not let this token of {account} read it (HTTP 403): give the token read access to "
    "{repo}, and to public gated repositories, at {hub}/settings/tokens, or accept the licence at {hub}/{repo}.",
    ("404", "none"): "{hub} knows no {repo} (HTTP 404): check the name, and that qwen_hub_endpoint is a hub's address.",
    ("404", "known"): "{hub} shows {account} no {repo} (HTTP 404): check the name at {hub}/{repo}; if it is private, "
    "give the token of an account that may read it (qwen_hub_token_file).",
}
UNKNOWN_TOKEN = (
    "{hub} does not know the token that was given (HTTP {status}): it is mistyped, expired or withdrawn. Make another "
    "at {hub}/settings/tokens, or give none if {repo} is public (it came from qwen_hub_token_file, HF_TOKEN or "
    "`hf auth login` on the control machine)."
)


def explain_access(refusal: Refusal, job: Job) -> str | None:
    """Words for a refusal that is about who asks for what; None for other answers."""
    kind = kind_of(refusal)
    if kind is None:
        return None
    token, account = owner(job)
    words = UNKNOWN_TOKEN if token == "unknown" else WORDS[kind, token]
    # a fine-grained token that lacks a right is told so by the hub alone
    if kind == "403" and token != "unknown" and refusal.said:
        words += " The hub says: {said}"
    return words.format(hub=job.endpoint, repo=job.repo, account=account, status=refusal.status, said=refusal.said)


def kind_of(refusal: Refusal) -> Kind | None:
    """Which refusal it is; None for another, and for the storage behind the hub, which knows no accounts."""
    if refusal.storage is not None:
        return None
    if refusal.code == "GatedRepo":
        return "gated"
    if refusal.code == "RevisionNotFound":
        return None
    kinds: dict[int, Kind] = {401: "401", 403: "403", 404: "404"}
    return kinds.get(refusal.status)


def owner(job: Job) -> tuple[Token, str]:
    """Whose token it is, in words; the hub is asked."""
    if job.token is None:
        return "none", ""
    try:
        name = HfApi(endpoint=job.endpoint, token=job.token).whoami()["name"]
    except Exception as error:
        refused = refusal_of(error)
        return ("unknown", "") if refused is not None and refused.status == 401 else ("known", "its account")
    return "known", f"the account {name!r}"
