"""Fetching, verifying, serving and pruning checkpoints, on the host that holds them."""
