"""Pure planning: `HostInventory` and settings in, `HostPlan` out. No I/O, no pyinfra, no vLLM."""
