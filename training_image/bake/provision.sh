#!/usr/bin/env bash
# Makes a machine image of a fresh Linux machine: a system user, a virtual environment, the units. Run as root:
#   provision.sh [--no-nvswitch] [--commit COMMIT] WHEEL [PYTHON [CLOUD]]
# --no-nvswitch: an image that never runs on machines with NVSwitch needs no fabric manager.
# --commit: what the wheel was built from; `everspot-agent --version` prints it.
# WHEEL: the everspot wheel; the unit files, lock.txt and sbom.txt lie beside this script. PYTHON: the interpreter, 3.11.4 or later.
# CLOUD: whose metadata service the instances have, aws or gcp; aws where it is not given.
# `provision.sh --dependencies [PYTHON]` does the part that the wheel does not change, for bakes that keep that part.
# `provision.sh --settle` is the first step of a bake: nothing but the bake installs packages from then on.
# Idempotent. `provision.sh --seal` is the last step of a bake: it removes what must not be in an image.
# In a chroot, where no systemd runs, set SYSTEMD_OFFLINE=1: the units are enabled and not started, and the self-test
# (`everspot-agent --self-test` inside the agent's unit) is left to the first boot.
set -euo pipefail

readonly prefix=/opt/everspot
readonly units=(everspot-agent.service everspot-gpus.service everspot-poweroff.path everspot-poweroff.service
    everspot-boot-deadline.timer everspot-boot-deadline.service everspot-scratch.service everspot-broker.socket
    everspot-broker@.service everspot-folders.service)
readonly enabled=(everspot-agent.service everspot-gpus.service everspot-poweroff.path everspot-boot-deadline.timer
    everspot-scratch.service everspot-broker.socket everspot-folders.service)
readonly scripts=(boot-deadline.sh folders.sh nvswitch.sh scratch.sh)
readonly job_users=64 # as many jobs can share a machine
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
readonly here

fail() {
    echo "provision: $*" >&2
    exit 1
}

# In the first minutes of a machine cloud-init and, on Ubuntu, apt's timers install packages. They hold apt's locks, and
# may bring a newer kernel with another version of the GPUs' driver. An instance lives for hours or days, and a new bake
# brings newer packages: below a job an upgrade restarts the agent (needrestart, discourse.ubuntu.com/t/44671), or
# replaces the libraries of a driver that is loaded.
settle() {
    local -a unattended=(apt-daily.timer apt-daily.service apt-daily-upgrade.timer apt-daily-upgrade.service
        unattended-upgrades.service)
    # Its errors are those of the machine's user data (exit codes 1 and 2), and no matter of the bake.
    if command -v cloud-init >/dev/null; then
        timeout 600 cloud-init status --wait >/dev/null || true
    fi
    systemctl mask "${unattended[@]}"
    systemctl stop "${unattended[@]}" || true # some are not there
}

# DPkg::Lock::Timeout is for dpkg's locks. At that of the lists `apt-get update` fails at once.
apt_update() {
    local attempt
    for ((attempt = 1; attempt <= 60; attempt++)); do
        if apt-get -q -o DPkg::Lock::Timeout=300 update; then
            return
        fi
        sleep 5
    done
    fail "apt-get update fails for 5 minutes"
}

apt_install() {
    command -v apt-get >/dev/null || fail "$* cannot be installed: there is no apt-get"
    apt_update
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"
}

# Debian and Ubuntu keep what makes virtual environments in a package of its own, by the interpreter's version.
need_venv() {
    local python=$1
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        apt_install "$(basename "$python")-venv"
    fi
}

# Joins the machine's own disks into one (scratch.sh). Without it the agent gets the first of them alone.
need_mdadm() {
    if ! command -v mdadm >/dev/null && command -v apt-get >/dev/null; then
        apt_install mdadm
    fi
}

# torch.compile and Triton build C and C++ against Python's headers, while a job runs.
need_compiler() {
    local python=$1 tool headers
    local -a missing=()
    for tool in gcc g++; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [[ -e $headers/Python.h ]] || missing+=("$(basename "$python")-dev")
    if [[ ${#missing[@]} -gt 0 ]]; then
        apt_install libc6-dev "${missing[@]}"
    fi
}

# The version of the GPUs' driver, of the newest kernel that has it, which the image boots: another one may run here. A
# machine that bakes needs no GPU. Nothing without a driver.
driver_version() {
    local kernel
    for kernel in $(ls /lib/modules 2>/dev/null | sort --version-sort --reverse) "$(uname -r)"; do
        if modinfo -k "$kernel" -F version nvidia 2>/dev/null; then
            return
        fi
    done
}

# The newest package of one of these names whose version is that of the driver, as NAME=VERSION; nothing without one.
package_of_version() {
    local driver=$1 name version
    shift
    for name in "$@"; do
        version=$(apt-cache madison "$name" 2>/dev/null |
            awk -F '|' -v start="$driver-" '{gsub(/ /, "", $2)} !n && index($2, start) == 1 {print $2; n = 1}')
        if [[ -n $version ]]; then
            echo "$name=$version"
            return
        fi
    done
}

# Where GPUs are joined by NVSwitch, CUDA works only beside a fabric manager of the driver's very version.
need_fabric_manager() {
    local driver package
    driver=$(driver_version)
    if [[ -z $driver ]]; then
        echo "provision: there is no NVIDIA driver, and so no need of a fabric manager"
        return
    fi
    if ! nv-fabricmanager --version 2>/dev/null | grep -qF "$driver"; then
        command -v apt-get >/dev/null || fail "nv-fabricmanager $driver cannot be installed: there is no apt-get"
        apt_update
        # Ubuntu's package carries the driver's branch in its name, NVIDIA's no longer does from branch 580 on.
        package=$(package_of_version "$driver" "nvidia-fabricmanager-${driver%%.*}" nvidia-fabricmanager)
        [[ -n $package ]] || fail "no source of packages has nvidia-fabricmanager $driver, the driver's version:" \
            "machines with NVSwitch (p4d to p6, a3-highgpu-8g and up) could not compute." \
            "Take a base image with a newer driver, or provision.sh --no-nvswitch (Packer: -var nvswitch=false)"
        apt_install "$package"
        # On Blackwell it starts the subnet manager of the switches, which older drivers' sources do not have.
        if apt-cache madison nvlsm 2>/dev/null | grep -q .; then
            apt_install nvlsm
        fi
    fi
    systemctl enable nvidia-fabricmanager.service
}

# Jobs with an image of their own get their GPUs by what nvidia-ctk writes at boot (everspot-gpus.service). The sources are
# those of the base image, as for the fabric manager.
need_container_toolkit() {
    if [[ -z $(driver_version) ]] || command -v nvidia-ctk >/dev/null; then
        return
    fi
    if command -v apt-get >/dev/null; then
        apt_update
    fi
    if apt-cache madison nvidia-container-toolkit-base 2>/dev/null | grep -q .; then
        apt_install nvidia-container-toolkit-base
    else
        echo "provision: no source of packages has nvidia-container-toolkit-base:" \
            "jobs with an image of their own get no GPUs" >&2
    fi
}

# Installs into a virtual environment. What pip unpacks takes 3 GB, and /tmp may lie in memory.
pip_install() {
    local venv=$1 unpacked
    shift
    unpacked=$(mktemp -d -p /var/tmp)
    TMPDIR=$unpacked "$venv/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check "$@"
    rm -rf "$unpacked"
}

install_dependencies() {
    local python=$1
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
    need_compiler "$python"
    "$python" -m venv "$prefix"
    pip_install "$prefix" --require-hashes --requirement "$here/lock.txt" # what it names, by its digests
}

install_everspot() {
    local wheel=$1 python=$2 commit=${3:-unknown}
    [[ -f $wheel ]] || fail "no wheel at $wheel"
    install_dependencies "$python"
    # Again where it is there: a wheel of the same version may be of another commit.
    pip_install "$prefix" --no-deps --force-reinstall "$wheel"
    "$prefix/bin/pip" --disable-pip-version-check check || fail "lock.txt is not of this wheel"
    printf '{"commit": "%s", "lock": "%s"}\n' "$commit" "$(sha256sum <"$here/lock.txt" | cut -d ' ' -f 1)" \
        >"$prefix/image.json"
    "$prefix/bin/python" -c 'import torch, everspot_train.agent.main, everspot_scheduler.main'
    "$prefix/bin/everspot-agent" --version
}

# What the image consists of: Python's packages with their licences as CycloneDX, the system's as a list. The tool that
# writes it down is no part of the image.
describe_packages() {
    local python=$1 tool
    tool=$(mktemp -d -p /var/tmp)
    "$python" -m venv "$tool"
    pip_install "$tool" --require-hashes --requirement "$here/sbom.txt"
    "$tool/bin/cyclonedx-py" environment --output-reproducible --output-file "$prefix/sbom.json" "$prefix/bin/python"
    rm -rf "$tool"
    if command -v dpkg-query >/dev/null; then
        dpkg-query --show --showformat '${Package}\t${Version}\t${Architecture}\n' >"$prefix/packages.tsv"
    fi
}

# Each job runs as a user that no other job has. They are in the groups that the devices of GPUs belong to, as the agent is.
make_job_users() {
    local number group
    for ((number = 0; number < job_users; number++)); do
        echo "u everspot-job-$number - \"A job of Everspot\" /nonexistent"
        for group in video render; do
            if getent group "$group" >/dev/null; then
                echo "m everspot-job-$number $group"
            fi
        done
    done >/usr/lib/sysusers.d/everspot.conf
    systemd-sysusers /usr/lib/sysusers.d/everspot.conf
}

install_units() {
    local cloud=$1 unit script
    for unit in "${units[@]}"; do
        install -m 0644 "$here/$unit" "/etc/systemd/system/$unit"
    done
    mkdir -p /etc/systemd/system/everspot-agent.service.d
    printf '[Service]\nEnvironment=EVERSPOT_CLOUD=%s\n' "$cloud" >/etc/systemd/system/everspot-agent.service.d/cloud.conf
    install -D -m 0644 "$here/nvidia-fabricmanager-everspot.conf" \
        /etc/systemd/system/nvidia-fabricmanager.service.d/everspot.conf
    for script in "${scripts[@]}"; do
        install -D -m 0755 "$here/$script" "$prefix/sbin/$script"
    done
    systemctl daemon-reload
    systemctl enable "${enabled[@]}"
}

# Whether jobs can do what they do, as a user of their own and within the walls of a job: compile, exchange gradients,
# unpack code, read data. For that start the agent's unit runs the self-test in place of the agent.
self_test() {
    local override=/run/systemd/system/everspot-agent.service.d/self-test.conf passed=yes
    if [[ ${SYSTEMD_OFFLINE:-} == 1 || ! -d /run/systemd/system ]]; then
        echo "provision: no systemd runs here: the self-test is left to the first boot"
        return
    fi
    install -D -m 0644 "$here/self-test.conf" "$override"
    systemctl daemon-reload
    systemctl restart everspot-agent.service || passed=no
    journalctl --unit everspot-agent.service --output cat --no-pager --lines 20 --since -10min
    rm "$override"
    systemctl daemon-reload
    [[ $passed == yes ]] || fail "the self-test failed: jobs would fail on this image"
}

# An upgrade by hand does not restart the agent and the brokers of jobs either.
keep_units() {
    install -d -m 0755 "$1"
    echo '$nrconf{override_rc}{qr(^everspot-)} = 0;' > "$1/everspot.conf"
}

seal() {
    systemctl stop "${enabled[@]}" || true
    rm -rf /var/lib/everspot /run/everspot
    rm -f /etc/ssh/ssh_host_*
    find /root /home -maxdepth 3 -name authorized_keys -delete
    find /root /home -maxdepth 2 -name .bash_history -delete
    find /var/log -type f -delete
    rm -rf /root/.cache /var/lib/cloud/instances /var/lib/cloud/instance
    find /tmp /var/tmp -mindepth 1 -delete
    # What one machine draws for itself, and two of one image must not share.
    rm -f /var/lib/systemd/random-seed /var/lib/systemd/credential.secret
    truncate --size 0 /etc/machine-id
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb
    # A file is that of the network of this bake. A link belongs to what resolves names here, as on Ubuntu.
    if [[ ! -L /etc/resolv.conf ]]; then
        rm -f /etc/resolv.conf
    fi
}

main() {
    [[ $EUID -eq 0 ]] || fail "run me as root"
    if [[ ${1:-} == --seal ]]; then
        seal
        return
    fi
    if [[ ${1:-} == --settle ]]; then
        settle
        return
    fi
    if [[ ${1:-} == --dependencies ]]; then
        settle
        install_dependencies "${2:-python3}"
        return
    fi
    local nvswitch=yes commit=unknown
    while [[ ${1:-} == --* ]]; do
        case $1 in
            --no-nvswitch) nvswitch=no ;;
            --commit)
                commit=${2:-}
                [[ $commit =~ ^[0-9a-f]{7,40}(-dirty)?$ ]] || fail "--commit $commit: a commit is 7 to 40 digits"
                shift
                ;;
            *) fail "there is no option $1" ;;
        esac
        shift
    done
    [[ $# -ge 1 ]] || fail "usage: provision.sh [--no-nvswitch] [--commit COMMIT] WHEEL [PYTHON [CLOUD]]" \
        "| --settle | --dependencies [PYTHON] | --seal"
    [[ ${3:-aws} =~ ^(aws|gcp)$ ]] || fail "$3 is no cloud; there are aws and gcp"
    settle
    install_everspot "$1" "${2:-python3}" "$commit"
    make_job_users
    install_units "${3:-aws}"
    if [[ $nvswitch == yes ]]; then
        need_fabric_manager
    fi
    need_container_toolkit
    keep_units /etc/needrestart/conf.d
    describe_packages "${2:-python3}"
    self_test
}

main "$@"
