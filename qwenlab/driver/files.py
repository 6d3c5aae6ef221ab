"""Files that keep a driver right: over updates, over boots, and before anything asks for it."""

from __future__ import annotations

from qwenlab.render import RemoteFile

UNATTENDED = "/etc/apt/apt.conf.d/52qwenlab-nvidia"
NOUVEAU = "/etc/modprobe.d/qwenlab-nouveau.conf"
MODULES = "/etc/modules-load.d/qwenlab-nvidia.conf"
PERSISTENCE = "/etc/systemd/system/nvidia-persistenced.service.d/qwenlab.conf"
SOURCE = "/etc/apt/sources.list.d/qwenlab-nvidia.list"
PREFERENCES = "/etc/apt/preferences.d/qwenlab-nvidia"
KEYRINGS = "/etc/apt/keyrings"

# Regular expressions that unattended-upgrades matches at the start of a package's name.
KEPT_FROM_UPGRADES = (
    *("nvidia-", "libnvidia-", "libcuda1", "libnv", "cuda-", "linux-modules-nvidia-", "xserver-xorg-video-nvidia"),
    *("firmware-nvidia", "nvlsm"),
)


def unattended() -> RemoteFile:
    """unattended-upgrades leaves the driver alone: a library newer than the loaded module stops every CUDA program."""
    lines = "".join(f'    "{name}";\n' for name in KEPT_FROM_UPGRADES)
    return RemoteFile(f"Unattended-Upgrade::Package-Blacklist {{\n{lines}}};\n")


def boot_files() -> dict[str, RemoteFile]:
    """The kernel's own drivers stay away, modules come at boot, and the persistence daemon keeps the cards awake."""
    return {
        NOUVEAU: RemoteFile(
            "blacklist nouveau\noptions nouveau modeset=0\nblacklist nova_core\nblacklist nova_drm\nblacklist nova\n"
        ),
        # without nvidia-uvm's device node the first CUDA program after a boot fails
        MODULES: RemoteFile("nvidia\nnvidia-uvm\n"),
        # some packages start the daemon without what it is for
        PERSISTENCE: RemoteFile(
            "[Service]\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced --persistence-mode --verbose\n"
        ),
    }


def keyring(fingerprint: str) -> str:
    """Where a signing key lies; its name says which key it is, so that another one is another file."""
    return f"{KEYRINGS}/qwenlab-nvidia-{fingerprint.upper()}.gpg"


def source(base: str, repository: str, architecture: str, fingerprint: str) -> RemoteFile:
    """The flat repository of one distribution, trusted by that one key."""
    return RemoteFile(f"deb [signed-by={keyring(fingerprint)}] {base}/{repository}/{architecture}/ /\n")


def preferences() -> RemoteFile:
    """NVIDIA's packages win over the distribution's of the same name, as NVIDIA's own pin file has it."""
    return RemoteFile("Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n")
