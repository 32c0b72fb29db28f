"""The bake of the template for Google Cloud on the local Google Cloud.

Not as the template has it: half a minute in which Packer waits for the tunnel's errors is two seconds.
"""

from collections.abc import Callable
from pathlib import Path

from packer_bake import Bake, run_packer

TEMPLATE = "everspot-gcp.pkr.hcl"
NETWORK = "builder"
PROXY_RANGE = "35.235.240.0/20"
"""Identity-Aware Proxy, "Using IAP for TCP forwarding"."""
TUNNEL = "  use_iap          = true\n"
Do = Callable[[str, str, object], object]
"""Changes Compute: verb, path below the project, body."""


def bake_on_google(folder: Path, do: Do, endpoint: str, region: str, family: str, failure: Callable[[], str]) -> Bake:
    """Bake an image of a family, in a network that Identity-Aware Proxy may enter; as `run_packer`."""
    do("POST", "global/networks", {"name": NETWORK, "autoCreateSubnetworks": False})
    network = f"global/networks/{NETWORK}"
    do("POST", f"regions/{region}/subnetworks", {"name": NETWORK, "network": network, "ipCidrRange": "10.9.0.0/24"})
    allowed = [{"IPProtocol": "tcp", "ports": ["22"]}]
    do(
        "POST",
        "global/firewalls",
        {"name": "proxy", "network": network, "sourceRanges": [PROXY_RANGE], "allowed": allowed},
    )
    folder.mkdir()
    variables = {
        "project": "everspot-local", "zone": f"{region}-a", "network": NETWORK, "subnetwork": NETWORK,
        "build_type": "e2-standard-4", "family": family,
    }  # fmt: skip
    return run_packer(folder, TEMPLATE, _adapted, variables, ("gcp", endpoint, region), failure)


def _adapted(text: str) -> str:
    assert TUNNEL in text
    return text.replace(TUNNEL, f"{TUNNEL}  iap_tunnel_launch_wait = 2\n")
