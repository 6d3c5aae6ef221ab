"""Hosts of the group `monitoring`, e.g. monitoring = ["watch1"]; let one serve as well with qwen_serve = True."""

qwen_prometheus = True
qwen_serve = False
