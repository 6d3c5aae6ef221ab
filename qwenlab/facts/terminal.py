"""Text as a terminal showed it, without the terminal's colours. Standard library only."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b.")
# What is left of a colour where the escape character was lost, or spelled out, on the way (vLLM's and SGLang's reports
# of their environment in issue trackers: "[4mGPU0", "\x1b[4mGPU0").
_SPELLED = re.compile(r"(?:\\x1b|\\u001b|\\033|\\e|\^\[|\u241b)?\[(?:[0-9]{1,3}(?:;[0-9]{1,3})*)?m")


# Marks that browsers and editors leave in copied text, and that nobody sees: byte order, zero width, soft hyphen.
_UNSEEN = dict.fromkeys(map(ord, "\ufeff\u200b\u200c\u200d\u2060\u00ad"))


def plain(text: str) -> str:
    """`text` without escape sequences, whole ones and those that lost their escape character, without marks that
    nobody sees, and with `\\n` ends."""
    return _SPELLED.sub("", _ESCAPE.sub("", text.replace("\r\n", "\n").translate(_UNSEEN)))
