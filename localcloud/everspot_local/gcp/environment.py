"""The environment variables that point the provider, Google's clients and Everspot's programs to the local cloud.

The provider reads one variable for each product. Others that look alike (`GOOGLE_IAM_CUSTOM_ENDPOINT`) have no effect:
service accounts and custom roles go by that of IAM_BETA.
"""

from everspot_local.gcp.callers import OWNER_TOKEN
from everspot_local.gcp.project import PROJECT

PREFIXES = {
    "COMPUTE": "/compute/v1/", "STORAGE": "/storage/v1/", "PUBSUB": "/pubsub/v1/", "LOGGING": "/logging/v2/",
    "IAM_BETA": "/iam/v1/",
    "IAM_CREDENTIALS": "/iamcredentials/v1/",
    "RESOURCE_MANAGER": "/resourcemanager/v1/", "RESOURCE_MANAGER_V3": "/resourcemanager/v3/",
    "SECRET_MANAGER": "/secretmanager/v1/", "KMS": "/kms/v1/", "MONITORING": "/monitoring/",
    "SERVICE_USAGE": "/serviceusage/v1/", "CLOUD_BILLING": "/cloudbilling/v1/",
    "BILLING_BUDGETS": "/billingbudgets/v1/",
}  # fmt: skip
"""By the product's name in the provider's variables. Monitoring's carries no version."""


XML = "/xml"
"""The prefix of the paths of Cloud Storage's XML API on the local cloud's one port. obstore keeps it."""


def endpoints(url: str) -> dict[str, str]:
    """Return the variables that point any program to the services. obstore has a variable of its own."""
    return {"EVERSPOT_GCP_ENDPOINT": url, "GOOGLE_BASE_URL": f"{url}{XML}"}


def abroad(url: str) -> dict[str, str]:
    """Return the variables that point programs of another cloud to the services."""
    return endpoints(url)


def owner(url: str, region: str) -> dict[str, str]:
    """Return the variables of the project's owner: a token that is valid here alone, and the URL of every product for
    the provider."""
    return {
        **endpoints(url),
        **{f"GOOGLE_{product}_CUSTOM_ENDPOINT": f"{url}{prefix}" for product, prefix in PREFIXES.items()},
        "GOOGLE_PROJECT": PROJECT,
        "GOOGLE_CLOUD_PROJECT": PROJECT,
        "GOOGLE_REGION": region,
        "GOOGLE_OAUTH_ACCESS_TOKEN": OWNER_TOKEN,
        "GOOGLE_BEARER_TOKEN": OWNER_TOKEN,
    }
