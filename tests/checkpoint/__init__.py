"""Checkpoints: fetched, verified, shared, prepared."""
