"""Lab hosts for the tests here."""

from tests.lab.conftest import trixie

__all__ = ["trixie"]
