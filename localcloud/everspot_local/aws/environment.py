"""The environment by which AWS's SDKs find the local cloud."""


def endpoints(url: str, region: str) -> dict[str, str]:
    """Return what every program needs to find the services, whoever it is."""
    return {"AWS_ENDPOINT_URL": url, "AWS_REGION": region, "AWS_DEFAULT_REGION": region}


def abroad(url: str) -> dict[str, str]:
    """Return what programs of another cloud need to find the services: regions go by the names of buckets."""
    return {"AWS_ENDPOINT_URL": url}


def owner(url: str, region: str) -> dict[str, str]:
    """Return what the account's owner needs: made-up keys, and no look for a metadata service."""
    return {
        **endpoints(url, region),
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
