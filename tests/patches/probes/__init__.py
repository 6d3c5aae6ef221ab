"""What each patch is for, asserted inside a vLLM: run on the released tree and on the patched one."""
