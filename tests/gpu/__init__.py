"""What only a card shows about the patch series: the same checks on a released and on a patched vLLM."""
