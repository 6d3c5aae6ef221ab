#!/bin/sh
# Runs one lab host: boots it, and boots it again whenever it asks for a reboot.
# usage: supervise.sh GROUP... -- PREFIX... systemd-nspawn ...
# GROUP: the host's control group in each hierarchy; this shell and the machine get a subgroup each, because a v2
# group that hands controllers down may hold no processes itself.
set -eu

groups=
while [ "$1" != -- ]; do
    groups="$groups $1"
    mkdir -p "$1/supervise"
    echo $$ > "$1/supervise/cgroup.procs"
    shift
done
shift

reboot=133 # systemd-nspawn's exit code for it under --keep-unit
status=$reboot
while [ "$status" -eq "$reboot" ]; do
    for group in $groups; do
        [ ! -d "$group/machine" ] || find "$group/machine" -depth -type d -exec rmdir {} +
        mkdir "$group/machine"
    done
    status=0
    (
        for group in $groups; do sh -c 'echo $PPID > "$1/machine/cgroup.procs"' join "$group"; done
        exec "$@"
    ) || status=$?
done
exit "$status"
