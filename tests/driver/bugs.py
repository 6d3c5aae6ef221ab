"""Known failures of drivers, kernels, apt and toolkits that a provisioner must prevent, repair or refuse in words.

Each has at least one test that bears its id (`test_b14_...`, `test_B17_...`): here, in tests/lab/test_driver*.py, or
where the part of the product that deals with it is tested. Public reports of each are named in those tests or in the
code that they test.
"""

from __future__ import annotations

BUGS = {
    "B01": "an automatic update swaps the libraries under the loaded module",
    "B02": "a hold that covers only some packages of the driver",
    "B04": "a mismatch that survives the reboot",
    "B05": "Secure Boot refuses the module that DKMS built",
    "B07": "a Blackwell card with the closed kernel module",
    "B08": "Above 4G decoding or Resizable BAR is off",
    "B10": "a driver branch that drops the older card in the box",
    "B11": "NVIDIA's apt key is refused as SHA-1",
    "B13": "apt-key does not exist any more",
    "B14": "the dpkg lock is held by unattended-upgrades",
    "B16": "a fabric manager of another minor version",
    "B17": "an NVSwitch server that looks like a PCIe box",
    "B19": "a card has fallen off the bus, and indices shift",
    "B20": "a card that looks healthy and takes the driver down at first use",
    "B22": "a pair of cards freezes the whole machine",
    "B23": "a driver patched for peer access that is not there",
    "B25": "a Linux driver installed inside WSL",
    "B26": "a WSL kernel without GPU support",
    "B34": "an nvcc newer than the CUDA headers",
    "B35": "a toolkit too old for the card",
    "B37": "a compiler that exists and that the service cannot see",
    "B38": "curand's headers are missing: no error, only slower",
    "B40": "a PyTorch build without the card's architecture",
    "B41": "FlashInfer's packages at different versions",
    "B43": "a small /tmp",
    "B44": "a disk too small for release, checkpoints and caches",
    "B46": "glibc or kernel too old for the wheels",
    "B47": "libnvidia-ml is not on the loader's path",
    "B92": "a power cap that is lost at the reboot",
    "B95": "a sudo password breaks the reboot",
    "B97": "a reboot through a jump host hangs",
    "B98": "a reboot that is never recognised as finished",
    "B100": "facts that show the past within one run",
    "B101": "a host without Python",
}
