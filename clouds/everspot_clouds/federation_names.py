"""Names of the identities of a federation's clusters, and list prices of traffic between them.

Each side derives the names itself, so that nobody has to pass them on. Nothing here needs a client, so that components
can use it.
"""

import hashlib
import re

_DIGEST = 12
_REGION = re.compile(r"[?&]region=([a-z0-9-]+)")


def visitor_name(host: str, home: str) -> str:
    """Return the name of the identity of `home`'s scheduler in the cloud of `host`, a role or a service account: 27
    characters, of 30 that a service account's id may have."""
    return f"everspot-visit-{_digest(host, home)}"


def pool(unique_id: str) -> str:
    """Return the id of a cluster's workload identity pool. `unique_id`: of its scheduler's service account, a number. A
    deleted pool keeps its id for 30 days, and a new cluster of the same name has a new service account."""
    return f"everspot-{unique_id[-8:]}"


def pool_provider(home: str) -> str:
    """Return the id of the pool's provider for one home."""
    return f"home-{_digest(home)}"


def provider_path(project_number: str, unique_id: str, home: str) -> str:
    """Return the whole name of that provider."""
    place = f"projects/{project_number}/locations/global/workloadIdentityPools/{pool(unique_id)}"
    return f"{place}/providers/{pool_provider(home)}"


OUT_USD_PER_GB = {"aws": 0.09, "gcp": 0.12}
"""List prices of sending to the internet, by cloud: the first 10 TB a month from Amazon EC2's and S3's regions in
Europe and the United States (Amazon EC2 pricing, "Data Transfer OUT"); Premium Tier from there, the first 1 TB a month
(Google Cloud "Network pricing"). As of 2025-10."""

BETWEEN_REGIONS_USD_PER_GB = {"aws": 0.02, "gcp": 0.02}
"""List prices of sending to another region of the same cloud, on the same continent. As of 2025-10."""


def egress_usd_per_gb(cloud: str, other: str, *, same_region: bool) -> float:
    """Return the price of a GB that is sent between two clusters: in the more expensive direction, because a job may
    have to come back."""
    if cloud == other:
        return 0.0 if same_region else BETWEEN_REGIONS_USD_PER_GB.get(cloud, 0.0)
    return max(OUT_USD_PER_GB.get(name, 0.0) for name in (cloud, other))


def region_of_url(url: str) -> str:
    """Return the region that the URL of a bucket on AWS names; empty if it names none."""
    match = _REGION.search(url)
    return match[1] if match else ""


def _digest(*names: str) -> str:
    return hashlib.sha256("/".join(names).encode()).hexdigest()[:_DIGEST]
