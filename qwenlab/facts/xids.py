"""What the driver's error codes mean (NVIDIA, "Xid errors" and its catalogue of Xid and SXid events)."""

from __future__ import annotations

# Codes whose cure is a reset or reboot, whatever the card still answers.
FATAL = {
    62: "internal micro-controller halt",
    79: "fallen off the bus",
    95: "uncontained memory error",
    110: "security fault",
    119: "GSP does not answer",
    120: "GSP error",
    140: "unrecovered ECC error",
    143: "could not be started",
    154: "recovery action required",
    158: "timeout without recovery",
    167: "PCIe timeout without recovery",
    169: "internal micro-controller halt",
}
# Codes that end a program, by its own fault or by the card's, and leave the card at work.
_PROGRAM, _MEMORY, _LINK = "a program's fault, mostly", "the card's memory", "NVLink"
OTHERS = {
    8: "stopped processing: the program it hit was ended",
    13: f"engine exception: {_PROGRAM}",
    31: f"memory page fault: {_PROGRAM}",
    32: "invalid commands: the program's, or PCIe's fault",
    38: "firmware watchdog: the driver's fault, mostly",
    43: f"stopped a program's work: {_PROGRAM}",
    45: "cleared up after a program that ended, or after another Xid",
    46: "stopped processing: reset the card if it stays",
    48: f"uncorrectable error of {_MEMORY}: watch for 63, 64 and 95",
    54: "a power cable of the card is not connected",
    61: "internal micro-controller warning",
    63: f"a row of {_MEMORY} will be replaced at the next reset",
    64: f"a row of {_MEMORY} could not be replaced: the card is due for exchange",
    69: f"engine class error: {_PROGRAM}",
    74: f"{_LINK} error: seat the bridge, look at both of its cards",
    78: "a virtual GPU could not be started: its host's and its own driver must fit",
    92: f"many corrected errors of {_MEMORY}",
    94: f"contained error of {_MEMORY}: the program it hit was ended",
    109: "a program did not give the card back in time",
    121: "corrected errors on the link to the Grace processor",
    136: f"{_LINK}: a link could not be trained",
    137: f"refused access over {_LINK}: {_PROGRAM}",
    141: f"fast path error: {_PROGRAM}",
    **dict.fromkeys(range(144, 151), f"{_LINK} 5 error"),
    155: f"{_LINK}: a link was taken down",
    156: "a part of the card will be retired at the next reset",
    157: "a part of the card could not be retired: the card is due for exchange",
    160: "a channel of the card's memory was retired",
    161: "a channel of the card's memory could not be retired: the card is due for exchange",
    168: "memory below its size, for errors while ECC is off",
    171: f"uncorrectable error of {_MEMORY} (DRAM): see 48",
    172: f"uncorrectable error of {_MEMORY} (SRAM): see 48",
}


def told(code: int) -> str:
    """A code with its meaning, as far as it is known."""
    meaning = FATAL.get(code) or OTHERS.get(code)
    return f"{code} ({meaning})" if meaning else str(code)
