"""The battery that verify.py asks an engine. Standard library only, Python 3.9 or newer."""
