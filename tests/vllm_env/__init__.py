"""Real vLLM trees for tests that run on the CPU, built once per machine and kept in the user's cache."""

from __future__ import annotations

from tests.vllm_env.environment import VERSIONS, VllmEnvironment, environment

__all__ = ["VERSIONS", "VllmEnvironment", "environment"]
