"""A distribution kernel for lab hosts: they share this machine's, which no Debian archive has headers for.

A flat repository of its own (not NVIDIA's), with `linux-image-<release>`, `linux-headers-<release>` and
the metapackages `linux-image-amd64` and `linux-headers-amd64`, newer than Debian's. The image brings /boot/vmlinuz and
a nouveau module; the headers bring what DKMS looks for.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from tests.lab.apt_repository.debs import Deb, Entry, build, link, text
from tests.lab.apt_repository.keys import SigningKey
from tests.lab.apt_repository.layout import index

NOUVEAU = "kernel/drivers/gpu/drm/nouveau/nouveau.ko"
DEPMOD = "#!/bin/sh\nset -e\ndepmod -a {release} || true\n"
# DKMS and the distribution's kernel hooks: a new image or new headers build the modules for it.
AUTOINSTALL = """\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    depmod -a {release} || true
    if [ -d /etc/kernel/header_postinst.d ]; then
        run-parts --arg={release} /etc/kernel/header_postinst.d
    fi
fi
"""


def packages(release: str) -> list[Deb]:
    """Image, headers and metapackages of one kernel release."""
    version = "99.1-1"
    modules, headers = f"lib/modules/{release}", f"usr/src/linux-headers-{release}"
    image = Deb(
        name=f"linux-image-{release}",
        version=version,
        summary="Linux kernel image of the lab",
        section="kernel",
        relations={"Depends": "kmod"},
        files={
            f"boot/vmlinuz-{release}": text("not a kernel: lab hosts run this machine's\n"),
            f"boot/config-{release}": text("CONFIG_MODULES=y\nCONFIG_MODULE_SIG=y\n"),
            f"{modules}/modules.builtin": text(""),
            f"{modules}/modules.builtin.modinfo": text(""),
            f"{modules}/modules.order": text(f"{NOUVEAU}\n"),
            f"{modules}/{NOUVEAU}": Entry(_nouveau(release)),  # DKMS drops the indexes of a kernel without modules
        },
        scripts={"postinst": DEPMOD.format(release=release)},
    )
    devel = Deb(
        name=f"linux-headers-{release}",
        version=version,
        summary="Header files of the lab's kernel",
        section="kernel",
        files={
            f"{headers}/Makefile": text(f"KERNELRELEASE := {release}\n"),
            f"{headers}/.config": text("CONFIG_MODULES=y\n"),
            f"{headers}/include/generated/utsrelease.h": text(f'#define UTS_RELEASE "{release}"\n'),
            f"{modules}/build": link(f"/{headers}"),
        },
        scripts={"postinst": AUTOINSTALL.format(release=release)},
    )
    metas = [
        Deb(
            name=f"linux-{kind}-amd64",
            version=version,
            summary=f"Linux {kind} for 64-bit PCs (meta-package)",
            section="kernel",
            relations={"Depends": f"linux-{kind}-{release} (= {version})"},
        )
        for kind in ("image", "headers")
    ]
    return [image, devel, *metas]


def _nouveau(release: str) -> bytes:
    """What modinfo and depmod read of a module; no code."""
    entries = ("license=GPL and additional rights", "name=nouveau", f"vermagic={release} SMP", "depends=")
    lines = [
        f'__attribute__((used, section(".modinfo"), aligned(1))) static const char i{place}[] = "{entry}";\n'
        for place, entry in enumerate(entries)
    ]
    with tempfile.TemporaryDirectory() as scratch:
        source, module = Path(scratch) / "nouveau.c", Path(scratch) / "nouveau.ko"
        source.write_text("".join(lines))
        subprocess.run(["gcc", "-c", "-o", str(module), str(source)], check=True, capture_output=True)
        return module.read_bytes()


def write(folder: Path, key: SigningKey) -> None:
    """The signed repository for this machine's kernel."""
    for package in packages(os.uname().release):
        build(package, folder)
    index(folder, key, "qwenlab lab kernel")
