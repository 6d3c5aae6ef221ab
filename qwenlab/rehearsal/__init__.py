"""Try a plan before twenty gigabytes are fetched: dummy weights of the right shape, and what the engine says."""
