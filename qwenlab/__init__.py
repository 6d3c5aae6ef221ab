"""qwenlab: provision NVIDIA hosts that serve Qwen3.8-27B with a tuned vLLM."""

__version__ = "0.1.0"
