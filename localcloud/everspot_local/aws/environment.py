"""The environment variables that point AWS's SDKs to the local cloud."""


def endpoints(url: str, region: str) -> dict[str, str]:
    """Return the variables that point any program to the services."""
    return {"AWS_ENDPOINT_URL": url, "AWS_REGION": region, "AWS_DEFAULT_REGION": region}


def abroad(url: str) -> dict[str, str]:
    """Return the variables for programs of another cloud. They name no region: S3 URLs carry it."""
    return {"AWS_ENDPOINT_URL": url}


def owner(url: str, region: str) -> dict[str, str]:
    """Return the variables of the account's owner: made-up keys, and no search for a metadata service."""
    return {
        **endpoints(url, region),
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
