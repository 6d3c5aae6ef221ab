"""What the driver's error codes mean (NVIDIA, "Xid errors" and its catalogue of Xid and SXid events)."""

from __future__ import annotations

# Codes whose cure is a reset or reboot, whatever the card still answers.
FATAL = {
    62: "internal micro-controller halt",
    79: "fallen off the bus",
    95: "uncontained memory error",
    119: "GSP does not answer",
    120: "GSP error",
    140: "unrecovered ECC error",
    154: "recovery action required",
}
# Codes that end a program, by its own fault or by the card's, and leave the card at work.
_PROGRAM, _MEMORY, _LINK = "a program's fault, mostly", "the card's memory", "NVLink"
OTHERS = {
    13: f"engine exception: {_PROGRAM}",
    31: f"memory page fault: {_PROGRAM}",
    32: "invalid commands: the program's, or PCIe's fault",
    43: f"stopped a program's work: {_PROGRAM}",
    45: "cleared up after a program that ended, or after another Xid",
    46: "stopped processing: reset the card if it stays",
    48: f"uncorrectable error of {_MEMORY}: watch for 63, 64 and 95",
    61: "internal micro-controller warning",
    63: f"a row of {_MEMORY} will be replaced at the next reset",
    64: f"a row of {_MEMORY} could not be replaced: the card is due for exchange",
    69: f"engine class error: {_PROGRAM}",
    74: f"{_LINK} error: seat the bridge, look at both of its cards",
    92: f"many corrected errors of {_MEMORY}",
    94: f"contained error of {_MEMORY}: the program it hit was ended",
    109: "a program did not give the card back in time",
    137: f"refused access over {_LINK}: {_PROGRAM}",
    **dict.fromkeys(range(144, 151), f"{_LINK} 5 error"),
}


def told(code: int) -> str:
    """A code with its meaning, as far as it is known."""
    meaning = FATAL.get(code) or OTHERS.get(code)
    return f"{code} ({meaning})" if meaning else str(code)
