"""Programs that run on the host. They import the standard library, each other, and what the release brings."""

LIBRARY = "/usr/local/lib/qwen"  # where they lie on a host
