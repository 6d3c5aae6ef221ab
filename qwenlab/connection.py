"""What to do about a host that pyinfra cannot log in to, from pyinfra's own words."""

from __future__ import annotations

ADVICE = (
    # part of pyinfra's message -> what to do; {target} is user@host
    ("Could not resolve hostname", "its name is unknown: check the spelling, or give ssh_hostname an address"),
    (
        "Authentication error",
        "the key is not accepted: ssh-copy-id {target}, or name the right ssh_user and ssh_key{key}",
    ),
    ("Host key", "the host has another SSH key than before: if you reinstalled it, ssh-keygen -R {host}"),
    ("No such file or directory", "the file named by ssh_key does not exist{key}"),
    ("", "it does not answer: is it on, is sshd running, are ssh_hostname and ssh_port right? Try: ssh {target}"),
)


def advice(error: str, host: str, user: str | None, key: str | None) -> str:
    """One line for the owner of `host`."""
    text = next(text for sign, text in ADVICE if sign in error)
    target = f"{user}@{host}" if user else host
    return "what to do: " + text.format(target=target, host=host, key=f" (now {key})" if key else "")
