"""Which driver and toolkit a host shall have, and what stands in the way: pure, over what was read from the host."""
