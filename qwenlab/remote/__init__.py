"""Programs that run on the host. They import nothing but the standard library: nothing of qwenlab is there."""
