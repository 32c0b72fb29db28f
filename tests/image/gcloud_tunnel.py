"""Stands in for the Google Cloud CLI where Packer opens a tunnel through Identity-Aware Proxy.

`gcloud_tunnel.py compute start-iap-tunnel NAME PORT --local-host-port=HOST:PORT --zone ZONE --project PROJECT` leads
from a local port to a running instance, as far as a firewall rule of its network lets the proxy in. Signing in has been
done.
"""

import argparse
import ipaddress
import json
import os
import socket
import sys
import urllib.request
from typing import Any

from everspot_local.gcp.callers import OWNER_TOKEN
from everspot_local.machines.doors import carry

PROXY = ipaddress.ip_network("35.235.240.0/20")
"""Identity-Aware Proxy, "Using IAP for TCP forwarding": what connections come from."""


def fetch(path: str) -> Any:
    """Return what Compute Engine answers."""
    url = f"{os.environ['EVERSPOT_GCP_ENDPOINT']}/compute/v1/{path}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {OWNER_TOKEN}"})
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def lets_in(rule: dict[str, Any], network: str, port: int) -> bool:
    """Return whether a firewall rule lets the proxy reach a port of a network's instances."""
    ranges = [ipaddress.ip_network(block) for block in rule.get("sourceRanges", ())]
    ports = [str(p) for each in rule.get("allowed", ()) if each["IPProtocol"] == "tcp" for p in each.get("ports", ())]
    return bool(rule["network"] == network and str(port) in ports and any(PROXY.subnet_of(block) for block in ranges))


def main() -> None:
    """Open the tunnel, and keep it open."""
    if sys.argv[1:3] == ["auth", "activate-service-account"]:
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs=2, choices=("compute", "start-iap-tunnel"))
    parser.add_argument("name")
    parser.add_argument("port", type=int)
    for option in ("--local-host-port", "--zone", "--project"):
        parser.add_argument(option, required=True)
    options = parser.parse_args()
    instance = fetch(f"projects/{options.project}/zones/{options.zone}/instances/{options.name}")
    (interface,) = instance["networkInterfaces"]
    rules = fetch(f"projects/{options.project}/global/firewalls").get("items", [])
    if instance["status"] != "RUNNING" or not any(lets_in(rule, interface["network"], options.port) for rule in rules):
        sys.exit(
            "ERROR: (gcloud.compute.start-iap-tunnel) Error while connecting [4003: 'failed to connect to backend']."
        )
    listener = socket.create_server(("127.0.0.1", int(options.local_host_port.partition(":")[2])))
    print(f"Listening on port [{options.local_host_port.partition(':')[2]}].", file=sys.stderr)
    carry(listener, (interface["networkIP"], options.port))


if __name__ == "__main__":
    main()
