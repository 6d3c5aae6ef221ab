"""Checks that run on a card, in the interpreter of a vLLM release; `python -m card NAME...`."""
