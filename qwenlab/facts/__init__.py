"""pyinfra facts and the pure parsers behind them: what a host is."""
