"""How far the throughput model is off: field reports against predictions, as tables, plot and fit."""
