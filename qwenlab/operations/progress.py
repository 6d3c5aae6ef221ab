"""How far a transfer is: readings, the rate between them, and words for people. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reading:
    """How far it was at one look; `done` and `total` are bytes, `total` is 0 while it is not known."""

    phase: str = ""
    message: str = ""
    done: int = 0
    total: int = 0


@dataclass
class Rate:
    """Bytes per second, smoothed over about ten seconds."""

    value: float = 0.0
    _last: tuple[float, int] | None = field(default=None, repr=False)

    def update(self, now: float, done: int) -> float:
        """Take a reading; what lay there before the first one does not count."""
        if self._last is not None and now > self._last[0]:
            seconds, count = now - self._last[0], max(0, done - self._last[1])
            weight = min(1.0, seconds / 10) if self.value else 1.0
            self.value += weight * (count / seconds - self.value)
        self._last = (now, done)
        return self.value


def amount(count: float) -> str:
    """Bytes for people."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def remaining(seconds: float) -> str:
    """A time to wait for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def line(label: str, reading: Reading, rate: float) -> str:
    """One plain line of progress."""
    if not reading.total:
        return f"{label}: {reading.phase or 'starting'} {reading.message}".rstrip()
    text = f"{label}: {reading.phase}, {amount(reading.done)} of {amount(reading.total)}"
    text += f" ({100 * reading.done / reading.total:.0f} %)"
    if rate > 0:
        text += f", {amount(rate)}/s, {remaining((reading.total - reading.done) / rate)} left"
    return text
