#!/usr/bin/env bash
# Makes a machine image of a fresh Linux machine: a system user, a virtual environment, the units. Run as root:
#   provision.sh WHEEL [PYTHON [CLOUD]]
# WHEEL: the everspot wheel; the unit files lie beside this script. PYTHON: the interpreter, 3.11.4 or later. CLOUD: whose
# metadata service the instances have, aws or gcp; aws where it is not given.
# Idempotent. `provision.sh --seal` is the last step of a bake: it removes what must not be in an image.
set -euo pipefail

readonly prefix=/opt/everspot
readonly units=(everspot-agent.service everspot-gpus.service everspot-poweroff.path everspot-poweroff.service
    everspot-boot-deadline.timer everspot-boot-deadline.service everspot-scratch.service)
readonly enabled=(everspot-agent.service everspot-gpus.service everspot-poweroff.path everspot-boot-deadline.timer
    everspot-scratch.service)
readonly scripts=(boot-deadline.sh scratch.sh)
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
readonly here

fail() {
    echo "provision: $*" >&2
    exit 1
}

# Debian and Ubuntu keep what makes virtual environments in a package of its own, by the interpreter's version.
need_venv() {
    local python=$1
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        return
    fi
    command -v apt-get >/dev/null || fail "$python cannot make virtual environments, and there is no apt-get to mend that"
    apt-get -q -o DPkg::Lock::Timeout=300 update
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 install "$(basename "$python")-venv"
}

# Joins the machine's own disks into one (scratch.sh). Without it the agent gets the first of them alone.
need_mdadm() {
    if command -v mdadm >/dev/null || ! command -v apt-get >/dev/null; then
        return
    fi
    apt-get -q -o DPkg::Lock::Timeout=300 update
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends mdadm
}

install_everspot() {
    local wheel=$1 python=$2
    [[ -f $wheel ]] || fail "no wheel at $wheel"
    command -v "$python" >/dev/null || fail "no $python on this machine"
    # Before 3.11.4 archives cannot be unpacked safely (tarfile's filters), and every start of a job would fail.
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11, 4))' ||
        fail "$("$python" -V 2>&1) is older than 3.11.4 (as on Debian 12): name another one, provision.sh WHEEL python3.12"
    if ! id everspot >/dev/null 2>&1; then
        useradd --system --user-group --home-dir /var/lib/everspot --shell /usr/sbin/nologin everspot
    fi
    # The devices of GPUs belong to these groups where they belong to any.
    local group
    for group in video render; do
        if getent group "$group" >/dev/null; then
            usermod --append --groups "$group" everspot
        fi
    done
    need_venv "$python"
    need_mdadm
    "$python" -m venv "$prefix"
    "$prefix/bin/pip" install --quiet --no-cache-dir "${wheel}[image,scheduler]"
    "$prefix/bin/python" -c 'import torch, everspot_train.agent.main, everspot_scheduler.main'
    "$prefix/bin/everspot-agent" --help >/dev/null
}

install_units() {
    local cloud=$1 unit script
    for unit in "${units[@]}"; do
        install -m 0644 "$here/$unit" "/etc/systemd/system/$unit"
    done
    install -D -m 0644 "$here/everspot-agent-limits.conf" /etc/systemd/system/everspot-agent.service.d/limits.conf
    printf '[Service]\nEnvironment=EVERSPOT_CLOUD=%s\n' "$cloud" >/etc/systemd/system/everspot-agent.service.d/cloud.conf
    for script in "${scripts[@]}"; do
        install -D -m 0755 "$here/$script" "$prefix/sbin/$script"
    done
    systemctl daemon-reload
    systemctl enable "${enabled[@]}"
}

seal() {
    systemctl stop "${enabled[@]}" || true
    rm -rf /var/lib/everspot /run/everspot
    rm -f /etc/ssh/ssh_host_*
    find /root /home -maxdepth 3 -name authorized_keys -delete
    find /root /home -maxdepth 2 -name .bash_history -delete
    find /var/log -type f -delete
    rm -rf /tmp/* /var/tmp/* /var/lib/cloud/instances /var/lib/cloud/instance
    truncate --size 0 /etc/machine-id
}

main() {
    [[ $EUID -eq 0 ]] || fail "run me as root"
    if [[ ${1:-} == --seal ]]; then
        seal
        return
    fi
    [[ $# -ge 1 ]] || fail "usage: provision.sh WHEEL [PYTHON [CLOUD]] | --seal"
    [[ ${3:-aws} =~ ^(aws|gcp)$ ]] || fail "$3 is no cloud; there are aws and gcp"
    install_everspot "$1" "${2:-python3}"
    install_units "${3:-aws}"
}

main "$@"
