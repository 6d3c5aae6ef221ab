"""What several programs need of engines, units and files. Standard library only, Python 3.9 or newer."""
