"""The endpoints of Google's services. It uses only the standard library, because the metadata reader needs it too.

Only the environment can change them, for the local cloud: `EVERSPOT_GCP_ENDPOINT` stands for all products, each
under a prefix of its own, and `GCE_METADATA_HOST` (HOST:PORT, the variable of google-auth) for the metadata server.
"""

import os
from collections.abc import Callable

ENDPOINT_VARIABLE = "EVERSPOT_GCP_ENDPOINT"
METADATA_VARIABLE = "GCE_METADATA_HOST"
METADATA_ADDRESS = "169.254.169.254"
"""The metadata server's link-local address, which needs no name to be resolved (Compute Engine documentation, "View and
query VM metadata")."""

PRODUCTS = {
    "compute": "compute.googleapis.com/compute/v1",
    "storage": "storage.googleapis.com/storage/v1",
    "pubsub": "pubsub.googleapis.com/v1",
    "secretmanager": "secretmanager.googleapis.com/v1",
    "monitoring": "monitoring.googleapis.com/v3",
    "resourcemanager": "cloudresourcemanager.googleapis.com/v1",
    "cloudbilling": "cloudbilling.googleapis.com/v1",
    "iam": "iam.googleapis.com/v1",
    "oauth2": "oauth2.googleapis.com",
    "sts": "sts.googleapis.com/v1",
    "serviceusage": "serviceusage.googleapis.com/v1",
    "iamcredentials": "iamcredentials.googleapis.com/v1",
}
"""Host and path of each product's API. At a local endpoint the first part of the path is the product's name."""


def base(product: str, getenv: Callable[[str], str | None] = os.environ.get) -> str:
    """Return the URL of a product's API, without a slash at its end."""
    host, _, path = PRODUCTS[product].partition("/")
    local = getenv(ENDPOINT_VARIABLE)
    if not local:
        return f"https://{host}/{path}".rstrip("/")
    return f"{local.rstrip('/')}/{product}/{path.removeprefix(product + '/')}".rstrip("/")


def metadata_base(getenv: Callable[[str], str | None] = os.environ.get) -> str:
    """Return the URL of the metadata server, without a slash at its end. Its address is link-local, so there is no
    encryption."""
    return f"http://{getenv(METADATA_VARIABLE) or METADATA_ADDRESS}/computeMetadata/v1"
