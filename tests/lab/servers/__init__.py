"""Servers that lab hosts need and that tests can make fail: they speak the real protocols over real sockets."""
