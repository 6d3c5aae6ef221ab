"""Engine releases: what they are pinned to, how a lock is resolved, and what identifies one."""
