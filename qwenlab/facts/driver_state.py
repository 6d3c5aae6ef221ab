"""What is there of the NVIDIA driver, asked before, during and after its installation; in one round trip."""

from __future__ import annotations

import re

from pyinfra.api.facts import FactBase

from qwenlab.driver.state import DriverState, parse
from qwenlab.facts.answers import reading

MANAGED = "/etc/apt/apt.conf.d/52qwenlab-nvidia"  # written when a run installs the driver
REBOOTED = "/etc/qwen/driver-reboot"  # the state for which a run rebooted the host

SCRIPT = rf"""
LC_ALL=C PATH=$PATH:/usr/sbin:/sbin; export LC_ALL PATH
. /etc/os-release 2>/dev/null && echo "os=$ID" && echo "release=${{VERSION_ID:-}}"
echo "arch=$(uname -m)"
running=$(uname -r)
boot=$(ls /boot/vmlinuz-* 2>/dev/null | sed 's,^/boot/vmlinuz-,,' | grep -v '\.old$' | sort -V | tail -n1)
boot=${{boot:-$running}}
echo "running=$running"; echo "boot_kernel=$boot"
echo "boot_id=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
for entry in /sys/bus/pci/devices/*; do
    [ "$(cat "$entry/vendor" 2>/dev/null)" = 0x10de ] || continue
    driver=$(readlink "$entry/driver" 2>/dev/null)
    echo "pci=${{entry##*/}} $(cat "$entry/device") $(cat "$entry/class") ${{driver##*/}}"
done
[ -d /sys/module/nouveau ] && echo nouveau=yes
loaded=$(cat /sys/module/nvidia/version 2>/dev/null)
[ -n "$loaded" ] ||
    loaded=$(sed -n 's/^NVRM version:.*  \([0-9][0-9.]*\)  .*/\1/p' /proc/driver/nvidia/version 2>/dev/null)
echo "loaded=$loaded"
if [ -r /proc/driver/nvidia/version ]; then
    if grep -q 'Open Kernel Module' /proc/driver/nvidia/version; then echo loaded_open=yes; else echo loaded_open=no; fi
fi
if smi=$(command -v nvidia-smi || ls /usr/lib/wsl/lib/nvidia-smi 2>/dev/null); then
    out=$(timeout -k 2 60 "$smi" -L 2>&1); echo "smi_code=$?"
    echo "$out" | head -n 40 | sed 's/^/smi=/'
fi
echo "module=$(modinfo -k "$boot" -F version nvidia 2>/dev/null)"
echo "module_licence=$(modinfo -k "$boot" -F license nvidia 2>/dev/null | head -n1)"
find "/lib/modules/$boot" -name 'nvidia.ko*' 2>/dev/null | sed 's/^/module_file=/'
dkms status nvidia 2>/dev/null | sed 's/^/dkms=/'
dpkg-query -W -f 'package=${{Package}}\t${{Version}}\t${{db:Status-Abbrev}}\t${{source:Package}}\n' \
    '*nvidia*' 'libcuda*' 'libnv*' 'cuda-*' nvlsm dkms 'linux-image-*' 'linux-headers-*' 2>/dev/null
apt-mark showhold 2>/dev/null | sed 's/^/held=/'
[ -z "$(dpkg --audit 2>/dev/null | head -n1)" ] || echo broken=yes
for variable in /sys/firmware/efi/efivars/SecureBoot-*; do
    [ -r "$variable" ] && echo "secure_boot=$(od -An -tu1 -j4 -N1 "$variable" | tr -d ' ')"
done
if command -v mokutil >/dev/null 2>&1 && [ -e /var/lib/dkms/mok.pub ]; then
    if mokutil --test-key /var/lib/dkms/mok.pub 2>&1 | grep -q 'already enrolled'; then echo mok_enrolled=yes
    else echo mok_enrolled=no; fi
fi
echo "container=$(systemd-detect-virt --container 2>/dev/null)"
if [ -e /dev/dxg ] || grep -qi microsoft /proc/version 2>/dev/null; then echo wsl=yes; fi
[ -e /usr/bin/nvidia-uninstall ] && echo runfile=yes
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    [ -r "$file" ] || continue
    sed -n 's,^[^#]*compute/cuda/repos/\([a-z0-9]*\).*,\1,p' "$file" | sort -u | sed "s,^,source=$file ,"
done
ls /etc/apt/keyrings/qwenlab-nvidia-*.gpg 2>/dev/null | sed 's/^/keyring=/'
[ -e {MANAGED} ] && echo managed=yes
[ -r {REBOOTED} ] && echo "rebooted_for=$(cat {REBOOTED})"
{{ dmesg 2>/dev/null || journalctl -k -b --no-pager -q 2>/dev/null; }} |
    grep -a -i -E 'NVRM|BAR ?[0-9].*(no space|failed to assign)|rejected' | tail -n 8 | sed 's/^/log=/'
true
"""


class NvidiaDriver(FactBase[DriverState]):
    """`DriverState` of a host, now."""

    def command(self) -> str:
        """The probe; it changes nothing and exits 0."""
        return SCRIPT.strip()

    def process(self, output: list[str]) -> DriverState:
        """Parse; an odd answer fails this host alone."""
        with reading("the host's answers about its driver"):
            return parse(list(output))

    @staticmethod
    def default() -> DriverState:
        """Nothing known."""
        return DriverState()


class AptCandidates(FactBase[dict[str, str]]):
    """Package name to the version that apt would install now; names without one are left out."""

    def command(self, names: tuple[str, ...]) -> str:
        """`names`: packages to ask about."""
        return f"LC_ALL=C apt-cache policy {' '.join(names)} 2>/dev/null || true"

    def process(self, output: list[str]) -> dict[str, str]:
        """Parse apt's answer."""
        found: dict[str, str] = {}
        name = ""
        for line in output:
            if head := re.match(r"^(\S+):$", line):
                name = head[1]
            elif (candidate := re.match(r"^\s+Candidate: (\S+)", line)) and candidate[1] != "(none)":
                found[name] = candidate[1]
        return found

    @staticmethod
    def default() -> dict[str, str]:
        """apt knows none."""
        return {}
