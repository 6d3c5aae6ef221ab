"""What the gate (gate.py) looks at before an engine starts. Standard library only, Python 3.9 or newer."""
