"""How policies refer to a resource: its name and type in conditions, and the resources whose policies it inherits.

Of products and kinds that give conditions no attributes (Pub/Sub, IAM, Monitoring, subnetworks) all three are empty: an
expression that wants a name or a type to be one grants nothing, one that wants it to be another does. Source: "Resource
attributes for IAM Conditions" in the IAM documentation; for what is not listed there, conditions in use, such as an
editor's `resource.type != "compute.googleapis.com/Instance" || …`, which would otherwise allow nothing else.
"""

import re
from typing import Any

_TYPES = (
    (r"projects/_/buckets/[^/]+/objects/.+", "storage.googleapis.com/Object"),
    (r"projects/_/buckets/[^/]+", "storage.googleapis.com/Bucket"),
    (r"projects/[^/]+/zones/[^/]+/instances/[^/]+", "compute.googleapis.com/Instance"),
    (r"projects/[^/]+/(zones|regions)/[^/]+/disks/[^/]+", "compute.googleapis.com/Disk"),
    (r"projects/[^/]+/(global|regions/[^/]+)/instanceTemplates/[^/]+", "compute.googleapis.com/InstanceTemplate"),
    (r"projects/[^/]+/global/images/[^/]+", "compute.googleapis.com/Image"),
    (r"projects/[^/]+/global/firewalls/[^/]+", "compute.googleapis.com/Firewall"),
    (r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+/cryptoKeyVersions/[^/]+",
     "cloudkms.googleapis.com/CryptoKeyVersion"),
    (r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+", "cloudkms.googleapis.com/CryptoKey"),
    (r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+", "cloudkms.googleapis.com/KeyRing"),
    (r"projects/[^/]+/secrets/[^/]+/versions/[^/]+", "secretmanager.googleapis.com/SecretVersion"),
    (r"projects/[^/]+/secrets/[^/]+", "secretmanager.googleapis.com/Secret"),
    (r"projects/[^/]+", "cloudresourcemanager.googleapis.com/Project"),
)  # fmt: skip
_COMPILED = tuple((re.compile(pattern), kind) for pattern, kind in _TYPES)


def attributes(resource: str, project: str, number: str) -> dict[str, Any]:
    """Return a resource's attributes for conditions. Secrets have the project's number, all others its id."""
    for pattern, kind in _COMPILED:
        if pattern.fullmatch(resource):
            name = resource
            if kind.startswith("secretmanager."):
                name = name.replace(f"projects/{project}/", f"projects/{number}/", 1)
            return {"resource.name": name, "resource.type": kind, "resource.service": kind.partition("/")[0]}
    return {"resource.name": "", "resource.type": "", "resource.service": ""}


def inherited(resource: str, project: str) -> list[str]:
    """Return the resource and those above it, up to the project: their policies apply to it."""
    if resource.startswith("projects/_/"):
        bucket = "/".join(resource.split("/")[:4])
        return [bucket, f"projects/{project}"] if bucket.startswith("projects/_/buckets/") else [f"projects/{project}"]
    parts = resource.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), 1, -1)]
