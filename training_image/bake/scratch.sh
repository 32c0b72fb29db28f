#!/usr/bin/env bash
# Puts the agent's folder onto the machine's own NVMe disks, where it has any (instance store on AWS, local SSDs on
# Google Cloud): a checkpoint is written there before it
# is uploaded, and they take gigabytes a second where a root volume takes 125 MB. What they hold ends with the instance,
# as all that the agent keeps does.
# Several disks become one (RAID 0). Disks that something else has mounted already, as AWS's Deep Learning images do at
# /opt/dlami/nvme, are shared with it. A disk is formatted only if it is blank: what anybody has put on one stays. Where
# there are none, nothing is done, and the folder lies on the root volume.
set -euo pipefail

readonly at=${EVERSPOT_SCRATCH:-/var/lib/everspot}
readonly by_id=${EVERSPOT_DISKS:-/dev/disk/by-id}
readonly label=everspot
# The names of the links that udev makes to a machine's own disks, and the models of such disks. By the EC2 User Guide
# ("Make instance store volumes available for use") the model tells them from EBS volumes. Google's own rules tell local
# SSDs by the models nvme_card and nvme_card0, nvme_card1, ..., and persistent disks are nvme_card-pd
# (GoogleCloudPlatform/guest-configs, 65-gce-disk-naming.rules).
readonly links=("nvme-Amazon_EC2_NVMe_Instance_Storage_*" "google-local-nvme-ssd-*")
readonly models="Amazon EC2 NVMe Instance Storage|nvme_card[0-9]*"

# Disks and what is made of them, a line each.
describe() {
    lsblk --pairs --paths --output NAME,TYPE,MODEL,FSTYPE,LABEL,MOUNTPOINT "$@"
}

# The disks of its own that udev knows and whose model says the same.
disks() {
    local name link disk
    for name in "${links[@]}"; do
        for link in "$by_id"/$name; do
            if [[ -e $link && $link != *-part* ]]; then
                disk=$(readlink -f "$link")
                if describe --nodeps "$disk" | grep -qE "MODEL=\"($models) *\""; then
                    echo "$disk"
                fi
            fi
        done
    done | sort -u
}

# Whether nothing is on a disk: no file system, table of partitions or member of an array, nothing made of it, and not
# in use. Both are asked: wipefs reads the disk, and what it misses lsblk may have from udev or the kernel (swap).
is_blank() {
    local signatures lines
    signatures=$(wipefs --no-act "$1") || return 1
    lines=$(describe "$1") || return 1
    [[ -z $signatures && $lines == NAME=*' FSTYPE=""'*' MOUNTPOINT=""' && $lines != *$'\n'* ]]
}

# The device that an earlier start of this machine has formatted.
formatted() {
    describe "$@" | sed -n "s/^NAME=\"\([^\"]*\)\".*FSTYPE=\"ext4\" LABEL=\"$label\".*/\1/p" | head -n 1
}

one_device() {
    if [[ $# -gt 1 ]] && command -v mdadm >/dev/null; then
        mdadm --create /dev/md/$label --run --quiet --level=0 --raid-devices=$# "$@" >&2
        echo /dev/md/$label
    else
        echo "$1"
    fi
}

put_on() {
    mount -o noatime,nodev,nosuid "$1" "$at"
    echo "scratch: $at lies on $1$2"
}

# The links come from udev, which may still be at work. It is waited for, but not for long: the agent starts behind this.
# Without a disk that is late, the agent's folder lies on the root volume or on the disks that are there.
await_links() {
    udevadm settle --timeout=10 2>/dev/null || echo "scratch: udev has not finished within 10 s; the disks that it knows are taken"
}

main() {
    if mountpoint --quiet "$at"; then
        return
    fi
    await_links
    local -a found blank=()
    mapfile -t found < <(disks)
    if [[ ${#found[@]} -eq 0 ]]; then
        echo "scratch: this machine has no NVMe disks of its own"
        return
    fi
    mkdir -p "$at"
    local taken device disk
    taken=$(describe "${found[@]}" | sed -n 's/.*MOUNTPOINT="\(\/[^"]*\)".*/\1/p' | head -n 1)
    if [[ -n $taken ]]; then
        mkdir -p "$taken/everspot"
        mount --bind "$taken/everspot" "$at"
        echo "scratch: $at lies in $taken"
        return
    fi
    device=$(formatted "${found[@]}")
    if [[ -n $device ]]; then
        put_on "$device" ", as before the machine started anew"
        return
    fi
    for disk in "${found[@]}"; do
        if is_blank "$disk"; then
            blank+=("$disk")
        else
            echo "scratch: $disk is left alone: something is on it"
        fi
    done
    if [[ ${#blank[@]} -eq 0 ]]; then
        echo "scratch: no disk is blank, so $at stays on the root volume"
        return
    fi
    device=$(one_device "${blank[@]}")
    mkfs.ext4 -q -F -m 0 -L $label -E lazy_itable_init=1,lazy_journal_init=1,nodiscard "$device"
    put_on "$device" " (${#blank[@]} disks)"
}

main "$@"
