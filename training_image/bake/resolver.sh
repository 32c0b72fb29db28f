#!/usr/bin/env bash
# Lets systemd resolve names on a machine of Google Cloud. Run as root, after provision.sh and before its --seal.
# Google's resolver has the address of the metadata server (Compute Engine documentation, "Internal DNS"), which is
# closed to jobs. They ask systemd's, at a loopback address.
set -euo pipefail

[[ $EUID -eq 0 ]] || {
    echo "resolver: run me as root" >&2
    exit 1
}
if [[ ! -x /usr/lib/systemd/systemd-resolved ]]; then
    apt-get -q -o DPkg::Lock::Timeout=300 update
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends systemd-resolved
fi
mkdir -p /etc/systemd/resolved.conf.d
# Where nothing tells systemd the resolvers of the network, as dhclient does not.
printf '[Resolve]\nFallbackDNS=169.254.169.254\n' >/etc/systemd/resolved.conf.d/everspot.conf
systemctl enable systemd-resolved.service
ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf
if [[ -d /run/systemd/system && ${SYSTEMD_OFFLINE:-} != 1 ]]; then
    systemctl restart systemd-resolved.service
fi
