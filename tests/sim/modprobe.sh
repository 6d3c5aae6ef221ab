#!/bin/sh
# modprobe of a lab host with simulated cards: NVIDIA's modules go to the stand-in for the kernel, all else to kmod.
#
# An NVIDIA module loads if depmod knows it for this kernel, Secure Boot lets it, nouveau does not hold the cards and it
# drives at least one of them. What a real kernel would log goes to /run/qwen-sim/kmsg.
set -eu
here=/usr/lib/qwen-sim
etc=/etc/qwen-sim
release=$(uname -r)

removing= quiet= names=
for word in "$@"; do
    case $word in
        -r | --remove) removing=1 ;;
        -q | --quiet) quiet=1 ;;
        -D | --show-depends | -c | --showconfig | -n | --dry-run | -V | --version | --dump-modversions)
            exec "$here/real/modprobe" "$@"
            ;;
        -*) ;;
        *=*) ;;
        *) names="$names $word" ;;
    esac
done
case "$names " in
    *" nvidia"*) ;;
    *) exec "$here/real/modprobe" "$@" ;;
esac

log() {
    mkdir -p /run/qwen-sim
    echo "$1" >>/run/qwen-sim/kmsg
}

refuse() {
    echo "modprobe: ERROR: could not insert 'nvidia': $1" >&2
    exit 1
}

if [ "$removing" ]; then
    exec "$here/kernel" unload
fi
for name in $names; do
    if ! modinfo -k "$release" -n "$(echo "$name" | tr _ -)" >/dev/null 2>&1; then
        [ "$quiet" ] || echo "modprobe: FATAL: Module $name not found in directory /lib/modules/$release" >&2
        exit 1
    fi
done
[ ! -e /sys/module/nvidia ] || exit 0
version=$(modinfo -k "$release" -F version nvidia)
flavour=proprietary
[ "$(modinfo -k "$release" -F license nvidia)" != "Dual MIT/GPL" ] || flavour=open
if [ -e "$etc/secure-boot" ]; then
    log "Loading of module with unavailable key is rejected"
    refuse "Key was rejected by service"
fi
if [ -e /sys/module/nouveau ]; then
    log "NVRM: The NVIDIA probe routine was not called for the GPUs: nouveau has claimed them"
    refuse "No such device"
fi
# A card is driven by this flavour and branch as its inventory says (gpu.<n>.module, first_branch, last_branch).
if ! awk -F= -v flavour="$flavour" -v branch="${version%%.*}" '
    split($1, key, ".") == 3 && key[1] == "gpu" { card[key[2]] = 1; value[key[2], key[3]] = $2 }
    END {
        for (n in card) {
            if (value[n, "module"] != "either" && value[n, "module"] != flavour) continue
            if (value[n, "last_branch"] != "" && branch + 0 > value[n, "last_branch"] + 0) continue
            if (value[n, "first_branch"] != "" && branch + 0 < value[n, "first_branch"] + 0) continue
            driven = 1
        }
        exit !driven
    }' "$etc/inventory"; then
    log "NVRM: installed in this system is not supported by the NVIDIA $version driver release."
    log "NVRM: No NVIDIA GPU found."
    refuse "No such device"
fi
exec "$here/kernel" load "$version" "$flavour"
