"""Simulated NVIDIA cards for tests, put below the code under test: the product never knows.

An *inventory* (`inventory.SimHost`, or a file in `inventories/`) says what cards a machine has. `compiled` turns it
into lines of `key=value`, which two programs built from `src/` read at run time:

- `libnvidia-ml.so.1`, which the real nvidia-ml-py, torch and every other NVML client load, and
- `nvidia-smi`: the default table, `-L`, `-q -x`, `--query-gpu=... --format=csv`, `--query-compute-apps`, `topo -m`,
  `topo -p2p`, `-pl`, `-pm`, with the real tool's layouts and exit codes.

`tree.write_tree` adds what the kernel shows: PCI devices in sysfs, `/proc/driver/nvidia`, `/sys/module/nvidia`.

Two ways to use it:

    root = local.SimRoot.create(tmp_path, inventory.load("2x3090-nvlink"))    # this process, no root needed
    root.run("nvidia-smi", "-L");  root.set_faults(Fault.lost(1))

    bench = lab_host.SimulatedGpus(host)                                   # a booted lab host
    bench.install(inventory.load("2x3090-nvlink"));  bench.set_faults(Fault.lost(1))
"""
