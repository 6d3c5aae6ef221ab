"""Power limits of the cards as they are now, and whether the unit that sets them is in force."""

from __future__ import annotations

from pyinfra.api.facts import FactBase

from qwenlab.driver.power import PowerCard, parse


class CardPower(FactBase[tuple[PowerCard, ...]]):
    """The cards with their limits; empty without a working driver."""

    def command(self) -> str:
        """Exits 0 without a driver too."""
        fields = "uuid,name,power.limit,power.default_limit,power.min_limit,power.max_limit"
        return f"timeout 60 nvidia-smi --query-gpu={fields} --format=csv,noheader,nounits 2>/dev/null || true"

    def process(self, output: list[str]) -> tuple[PowerCard, ...]:
        """Parse."""
        return parse(list(output))

    @staticmethod
    def default() -> tuple[PowerCard, ...]:
        """None known."""
        return ()
