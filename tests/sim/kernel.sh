#!/bin/sh
# Hardware and kernel of a lab host with simulated cards. Laid out by tests/sim/lab_host.py.
#
#   kernel boot                     show the cards; load the module that a real kernel would load at boot
#   kernel load VERSION FLAVOUR     the NVIDIA module (open or proprietary) is loaded from now on
#   kernel unload                   the reverse
#
# What this cannot do for real is load a module and add PCI devices, so the places where the kernel shows both are
# mounted over: /sys/bus/pci/devices, /sys/bus/pci/drivers, /sys/module, /proc/driver.
set -eu

etc=/etc/qwen-sim
run=/run/qwen-sim

boot() {
    mkdir -p "$run"
    cp -a "$etc/tree/pci/." "$run/"
    # A card may sit anywhere: whatever the machine below really has on its bus stays out of sight.
    mount --bind "$run/sys/bus/pci/devices" /sys/bus/pci/devices
    mkdir -p "$run/sys/bus/pci/drivers/nvidia" "$run/sys/bus/pci/drivers/nouveau"
    mount --bind "$run/sys/bus/pci/drivers" /sys/bus/pci/drivers
    mkdir -p "$run/real-modules"
    mount --bind /sys/module "$run/real-modules"
    mount --make-private "$run/real-modules"
    mount -t tmpfs -o mode=755 modules /sys/module
    for module in "$run"/real-modules/*; do ln -s "$module" /sys/module/; done
    mount -t tmpfs -o mode=755 driver /proc/driver
    if [ -d "$etc/wsl2" ]; then
        for file in /proc/version /proc/sys/kernel/osrelease; do
            cp "$etc/wsl2$file" "$run/$(basename "$file")"
            mount --bind "$run/$(basename "$file")" "$file"
        done
        mknod -m 666 /dev/dxg c 10 125 2>/dev/null || true
        return
    fi
    if [ -e "$etc/secure-boot" ]; then
        mount -t tmpfs -o mode=755 firmware /sys/firmware
        mkdir -p /sys/firmware/efi/efivars
        printf '\006\000\000\000\001' >/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
    fi
    if [ -f "$etc/boot-module" ]; then
        # shellcheck disable=SC2046  # two words
        load $(cat "$etc/boot-module")
    elif [ -f "$etc/nouveau" ] && ! blacklisted nouveau; then
        mkdir -p /sys/module/nouveau
        bind nouveau
    else
        /usr/lib/qwen-sim/modprobe --quiet nvidia || true
    fi
}

blacklisted() {
    grep -rqsE "^[[:space:]]*blacklist[[:space:]]+$1([[:space:]]|\$)" /etc/modprobe.d /usr/lib/modprobe.d /lib/modprobe.d /run/modprobe.d
}

bind() {
    [ -d "$run/sys/devices" ] || return 0
    find "$run/sys/devices" -name class -exec grep -lE '^0x03' {} + | while read -r class; do
        ln -sfn "$run/sys/bus/pci/drivers/$1" "$(dirname "$class")/driver"
    done
}

unbind() {
    [ ! -d "$run/sys/devices" ] || find "$run/sys/devices" -name driver -type l -delete
}

load() {
    [ ! -e /sys/module/nvidia ] || return 0
    version=$1 flavour=$2
    cp -a "$etc/tree/$flavour/sys/module/." /sys/module/
    cp -a "$etc/tree/$flavour/proc/driver/." /proc/driver/
    find /sys/module/nvidia /proc/driver/nvidia -type f -exec sed -i "s/@VERSION@/$version/g" {} +
    number=0
    for card in /proc/driver/nvidia/gpus/*; do
        [ -e "$card" ] || continue
        mknod -m 666 "/dev/nvidia$number" c 195 "$number" 2>/dev/null || true
        number=$((number + 1))
    done
    mknod -m 666 /dev/nvidiactl c 195 255 2>/dev/null || true
    mknod -m 666 /dev/nvidia-uvm c 511 0 2>/dev/null || true
    bind nvidia
}

unload() {
    rm -rf /sys/module/nvidia /sys/module/nvidia_uvm /proc/driver/nvidia /proc/driver/nvidia-nvswitch
    rm -f /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm
    unbind
}

"$@"
