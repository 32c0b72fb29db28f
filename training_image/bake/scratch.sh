#!/usr/bin/env bash
# Puts the agent's folder onto the machine's own NVMe disks, where it has any: a checkpoint is written there before it
# is uploaded, and they take gigabytes a second where a root volume takes 125 MB. What they hold ends with the instance,
# as all that the agent keeps does.
# Several disks become one (RAID 0). Disks that something else has mounted already, as AWS's Deep Learning images do at
# /opt/dlami/nvme, are shared with it. Where there are none, nothing is done, and the folder lies on the root volume.
set -euo pipefail

readonly at=${EVERSPOT_SCRATCH:-/var/lib/everspot}
readonly by_id=${EVERSPOT_DISKS:-/dev/disk/by-id}
readonly label=everspot

# By the EC2 User Guide ("Make instance store volumes available for use") the disk's model tells it from an EBS volume.
disks() {
    local link
    for link in "$by_id"/nvme-Amazon_EC2_NVMe_Instance_Storage_*; do
        if [[ -e $link && $link != *-part* ]]; then
            readlink -f "$link"
        fi
    done | sort -u
}

one_device() {
    if [[ $# -gt 1 ]] && command -v mdadm >/dev/null; then
        mdadm --create /dev/md/$label --run --quiet --level=0 --raid-devices=$# "$@" >&2
        echo /dev/md/$label
    else
        echo "$1"
    fi
}

main() {
    if mountpoint --quiet "$at"; then
        return
    fi
    local -a found
    mapfile -t found < <(disks)
    if [[ ${#found[@]} -eq 0 ]]; then
        echo "scratch: this machine has no NVMe disks of its own"
        return
    fi
    mkdir -p "$at"
    local taken device
    taken=$(lsblk --noheadings --output MOUNTPOINT "${found[@]}" | awk 'NF { print; exit }')
    if [[ -n $taken ]]; then
        mkdir -p "$taken/everspot"
        mount --bind "$taken/everspot" "$at"
        echo "scratch: $at lies in $taken"
        return
    fi
    device=$(one_device "${found[@]}")
    mkfs.ext4 -q -F -m 0 -L $label -E lazy_itable_init=1,lazy_journal_init=1,nodiscard "$device"
    mount -o noatime,nodev,nosuid "$device" "$at"
    echo "scratch: $at lies on $device (${#found[@]} disks)"
}

main "$@"
