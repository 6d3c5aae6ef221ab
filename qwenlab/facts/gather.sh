# Prints what a host is, raw: one capture after another, each behind a head line "@@@qwenlab NAME STATUS".
# POSIX sh, no other need; changes nothing. Slow commands run side by side, each with a time limit.
LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin:/usr/local/cuda/bin:/usr/lib/wsl/lib
export LC_ALL PATH
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

limited() {
    if command -v timeout >/dev/null 2>&1; then timeout -k 2 20 "$@"; else "$@"; fi
}

# run NAME COMMAND...: in the background; stderr only where stdout stays empty
run() {
    name=$1
    shift
    {
        limited "$@" >"$dir/$name" 2>"$dir/.$name" </dev/null
        echo $? >"$dir/.$name.status"
        [ -s "$dir/$name" ] || cat "$dir/.$name" >"$dir/$name"
    } &
}

# keep NAME FILE: a file's content
keep() {
    [ -r "$2" ] && cat "$2" >"$dir/$1" 2>/dev/null
}

attributes() {
    for attribute in vendor device class subsystem_vendor subsystem_device numa_node boot_vga \
        current_link_speed max_link_speed current_link_width max_link_width iommu_group/type; do
        if [ -r "$1/$attribute" ] && IFS= read -r value <"$1/$attribute"; then
            echo "$attribute $value"
        fi
    done 2>/dev/null
    driver=$(readlink "$1/driver" 2>/dev/null) && echo "driver ${driver##*/}"
}

pci() {
    seen=
    for entry in /sys/bus/pci/devices/*; do
        IFS= read -r vendor <"$entry/vendor" || continue
        [ "$vendor" = 0x10de ] || continue
        IFS= read -r class <"$entry/class" || continue
        case $class in 0x0300* | 0x0302* | 0x0380* | 0x0680*) ;; *) continue ;; esac
        path=$(cd -P "$entry" && pwd -P)
        echo "@device ${entry##*/}"
        echo "path $path"
        attributes "$entry"
        parent=${path%/*}
        while case ${parent##*/} in ????:??:??.?) true ;; *) false ;; esac do
            case " $seen " in
            *" ${parent##*/} "*) ;;
            *)
                seen="$seen ${parent##*/}"
                echo "@bridge ${parent##*/}"
                attributes "$parent"
                ;;
            esac
            parent=${parent%/*}
        done
    done 2>/dev/null
}

kernel_log() {
    { dmesg 2>/dev/null || journalctl -k -b --no-pager -q 2>/dev/null; } |
        grep -a -i -E \
            -e 'NVRM|nvidia|BAR ?[0-9].*(no space|failed to assign)|rejected by service' \
            -e 'module.*is (rejected|restricted)|IO_PAGE_FAULT|DMAR:.*fault addr' |
        tr -cd '\11\12\40-\176' | tail -n 500
}

services() {
    for unit in nvidia-fabricmanager nvidia-persistenced unattended-upgrades; do
        if systemctl cat "$unit" >/dev/null 2>&1; then
            echo "$unit $(systemctl is-active "$unit" 2>/dev/null)"
        else
            echo "$unit absent"
        fi
    done
}

secure_boot() {
    for variable in /sys/firmware/efi/efivars/SecureBoot-*; do
        [ -r "$variable" ] && echo "efivar $(od -An -tu1 -j4 -N1 "$variable" | tr -d ' ')"
    done
}

nvcc_versions() {
    for compiler in $(command -v nvcc) /usr/local/cuda*/bin/nvcc; do
        [ -x "$compiler" ] && echo "$compiler" && "$compiler" --version
    done
}

if command -v nvidia-smi >/dev/null 2>&1; then
    run smi_xml nvidia-smi -q -x
    run smi_table nvidia-smi
    run smi_list nvidia-smi -L
    run topo nvidia-smi topo -m
    run p2p_read nvidia-smi topo -p2p r
    run p2p_write nvidia-smi topo -p2p w
else
    echo 127 >"$dir/.smi_xml.status"
    : >"$dir/smi_xml"
fi
python=$(command -v python3) && {
    limited "$python" - >"$dir/nvml" 2>"$dir/nvml_errors" <<'QWENLAB_NVML_PROGRAM'
@NVML_PROGRAM@
QWENLAB_NVML_PROGRAM
    echo $? >"$dir/.nvml.status"
} &
run packages dpkg-query -W -f '${Package}\t${Version}\t${Status}\t${source:Package}\n' '*nvidia*' 'libcuda*' 'cuda-drivers*'
run holds apt-mark showhold
run modinfo modinfo nvidia
services >"$dir/services" &
nvcc_versions >"$dir/nvcc" 2>/dev/null &
kernel_log >"$dir/kernel" &

pci >"$dir/pci"
keep os_release /etc/os-release
keep meminfo /proc/meminfo
keep mounts /proc/mounts
keep cmdline /proc/cmdline
keep hostname /proc/sys/kernel/hostname
keep boot_id /proc/sys/kernel/random/boot_id
keep numa /sys/devices/system/node/online
keep driver_version /proc/driver/nvidia/version
keep module_version /sys/module/nvidia/version
cat /proc/driver/nvidia/gpus/*/information >"$dir/proc_gpus" 2>/dev/null
uname -srm >"$dir/uname"
{
    grep -m 1 '^model name' /proc/cpuinfo
    grep -m 1 '^vendor_id' /proc/cpuinfo
    echo "count $(getconf _NPROCESSORS_ONLN)"
} >"$dir/cpuinfo" 2>/dev/null
grep -E '^(nvidia|nouveau)' /proc/modules >"$dir/modules" 2>/dev/null
df -PTk >"$dir/df" 2>/dev/null
systemd-detect-virt >"$dir/virtualisation" 2>/dev/null
secure_boot >"$dir/secure_boot"
ls -d /sys/kernel/iommu_groups/* 2>/dev/null | wc -l >"$dir/iommu"
cat /sys/class/dmi/id/board_vendor /sys/class/dmi/id/board_name /sys/class/dmi/id/bios_version \
    /sys/class/dmi/id/bios_date >"$dir/bios" 2>/dev/null
ls -d /usr/local/cuda-* >"$dir/toolkits" 2>/dev/null
ls -d /dev/nvidia* /dev/dxg /usr/lib/wsl/lib >"$dir/devices" 2>/dev/null
ls -d /usr/bin/nvidia-uninstall >"$dir/runfile" 2>/dev/null
getconf GNU_LIBC_VERSION >"$dir/glibc" 2>/dev/null
find "/lib/modules/$(uname -r)" -name 'nvidia.ko*' >"$dir/module_files" 2>/dev/null
wait

for file in "$dir"/*; do
    name=${file##*/}
    status=0
    [ -r "$dir/.$name.status" ] && IFS= read -r status <"$dir/.$name.status"
    echo "@@@qwenlab $name $status"
    cat "$file"
    echo
done
echo "@@@qwenlab end"
