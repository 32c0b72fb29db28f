#!/usr/bin/env bash
# Switches the instance off if its agent has not reported by the boot deadline: boot-deadline.sh RUNTIME_DIR UPTIME_FILE
# In RUNTIME_DIR the agent makes `reported` once its first heartbeat is written, and writes the manifest's deadline into
# `boot-deadline`, in seconds. Without that, as an agent that read no manifest cannot say more, it is ten minutes; twenty
# where GPUs are joined by NVSwitch, whose set-up the agent waits for; thirty on bare metal.
set -euo pipefail

readonly runtime=$1 uptime_file=$2

if [[ -e $runtime/reported ]]; then
    exec systemctl stop everspot-boot-deadline.timer
fi
deadline=600
if bash "$(dirname "${BASH_SOURCE[0]}")/nvswitch.sh"; then
    deadline=1200
elif [[ $(systemd-detect-virt 2>/dev/null || true) == none ]]; then
    deadline=1800
fi
if [[ -r $runtime/boot-deadline ]]; then
    read -r stated <"$runtime/boot-deadline" || true
    if [[ ${stated:-} =~ ^[0-9]{1,7}$ ]]; then
        deadline=$stated
    fi
fi
read -r up _ <"$uptime_file"
if ((${up%%.*} >= deadline)); then
    echo "the agent has not reported within ${deadline} s of the boot: switching this instance off" >&2
    exec systemctl --no-block poweroff
fi
