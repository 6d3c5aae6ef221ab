"""pyinfra operations that the built-in ones cannot do."""
