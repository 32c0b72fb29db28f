#!/usr/bin/env bash
# Has chrony follow the cloud's own clock, and no other. Run as root, before provision.sh: clock.sh aws|gcp
# AWS: "Precision clock and time synchronization on your EC2 instance" (EC2 User Guide). Google Cloud: "Configure NTP on
# a VM" (Compute Engine documentation). Both spread a leap second over hours, each in its own way, and both advise
# against a second source. Neither is reached through the network's firewall, and both are there without internet.
# The images of both clouds bring chrony; it is installed where a base has none. It starts at the next boot.
set -euo pipefail

fail() {
    echo "clock: $*" >&2
    exit 1
}

[[ $EUID -eq 0 ]] || fail "run me as root"
case ${1:-} in
    aws) source="169.254.169.123 prefer iburst minpoll 4 maxpoll 4" ;;
    gcp) source="metadata.google.internal prefer iburst" ;;
    *) fail "usage: clock.sh aws|gcp" ;;
esac
if [[ ! -x /usr/sbin/chronyd ]]; then
    apt-get -q -o DPkg::Lock::Timeout=300 update
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends chrony
fi
# The whole file, so that no pool of the distribution and none of the network's DHCP remains. A clock that is off by
# more than a second is set at once at the start, and slewed later on: time does not jump below a job. Jobs get no
# command port.
cat >/etc/chrony/chrony.conf <<CONF
server $source
driftfile /var/lib/chrony/chrony.drift
makestep 1.0 3
rtcsync
cmdport 0
CONF
/usr/sbin/chronyd -p -f /etc/chrony/chrony.conf >/dev/null || fail "chrony refuses its settings"
# In a container the clock is that of the host, and nobody sets it.
mkdir -p /etc/systemd/system/chrony.service.d
printf '[Unit]\nConditionCapability=CAP_SYS_TIME\n' >/etc/systemd/system/chrony.service.d/everspot.conf
systemctl enable chrony.service
