"""Names of the identities of a federation's clusters.

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


def region_of_url(url: str) -> str:
    """Return the region that the URL of a bucket on AWS names; empty if it names none."""
    match = _REGION.search(url)
    return match[1] if match else ""


def _digest(*names: str) -> str:
    return hashlib.sha256("/".join(names).encode()).hexdigest()[:_DIGEST]
