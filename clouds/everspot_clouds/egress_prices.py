"""List prices of traffic between the clusters of a federation."""

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
