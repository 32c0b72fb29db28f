#!/usr/bin/env bash
# Exits with 0 on a machine whose GPUs are joined by NVSwitch, otherwise with 1. There no CUDA context opens (error 802)
# until the fabric manager has set the switches up; on any other machine the fabric manager itself fails.
set -euo pipefail

readonly switches=${EVERSPOT_NVSWITCHES:-/proc/driver/nvidia-nvswitch/devices}
readonly infiniband=${EVERSPOT_INFINIBAND:-/sys/class/infiniband}

# Up to Hopper (A100, H100, H200) the driver lists the switches, as NVIDIA's own gpu-driver-container looks them up.
if [[ -n $(ls -A "$switches" 2>/dev/null) ]]; then
    exit 0
fi
# From Blackwell (B200, B300) on they are no PCI devices any more. They are managed through network adapters whose product
# data say SW_MNG: so NVIDIA's nvidia-fabricmanager-start.sh tells them from ordinary ones.
for adapter in "$infiniband"/*/device/vpd; do
    if [[ -r $adapter ]] && grep -qa SW_MNG "$adapter"; then
        exit 0
    fi
done
exit 1
