"""Tests of the patch series."""
