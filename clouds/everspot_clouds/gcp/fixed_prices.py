"""Google Cloud's list prices of everything but instances: one dated table, of us-central1.

Regions in `SAME` have the same prices. In others a price that has a key is taken from the region's price table
(`pricelists`). Any other price is mostly the same or higher there, and an estimate says so. Free allotments are not
counted: they may be used up.
"""

from datetime import date

from everspot_clouds.costing import price

AS_OF = date(2025, 10, 1)
"""The day of the prices."""

SAME = ("us-central1", "us-east1", "us-west1")

NAT_VM = price("0.0014", "hour", "cloud.google.com/nat/pricing: a VM that uses the gateway, up to 32", "NAT")
NAT_VMS = 32
"""The number of machines from which the gateway's cost stays the same."""
NAT_MOST = price("0.044", "hour", "cloud.google.com/nat/pricing: a gateway of more than 32 VMs", "NAT")
NAT_GB = price("0.045", "GB", "cloud.google.com/nat/pricing: data processed, either way")
ADDRESS = price(
    "0.005",
    "hour",
    "cloud.google.com/vpc/pricing: an external address in use, NAT's own included",
    "addresses",
    "external_address_hour",
)
SPOT_ADDRESS = price(
    "0.0025",
    "hour",
    "Cloud Billing Catalog, SKU 4AF8-7C1F-39C4: External IP Charge on a Spot Preemptible VM",
    "addresses",
    "spot_external_address_hour",
)
"""As public programs that read the catalogue have it; the standard one is their SKU C054-7F72-A02E."""
IDLE_ADDRESS = price(
    "0.01", "hour", "cloud.google.com/vpc/pricing: a static external address that nothing uses", "addresses"
)
KEY_VERSION = price("0.06", "month", "cloud.google.com/kms/pricing: an active key version, software", "keys")
HSM_KEY_VERSION = price("1", "month", "cloud.google.com/kms/pricing: an active symmetric key version, HSM", "keys")
SECRET_VERSION = price(
    "0.06", "month", "cloud.google.com/secret-manager/pricing: an active version, in each location", "secrets"
)
ALERT = price(
    "1.50", "month", "cloud.google.com/monitoring/alerts/cost-control, 2025: the per-condition cost", "monitoring"
)
"""As announced. The $0.35 for each million time series that conditions read depends on use and is in no figure. Google
has postponed the charge more than once (January 2025, April 2025, May 2026, and by reports of its price page in 2026 to
September 2027 at the earliest). Until then a condition costs nothing. The price page of 2026 mentions both charges,
without figures."""

IMAGE_GIB = 60
"""The disk of an image as `training_image/bake/everspot-gcp.pkr.hcl` bakes it."""
DISK_GIB = {
    "pd-standard": price(
        "0.04",
        "month",
        "cloud.google.com/compute/disks-image-pricing: a GiB of pd-standard",
        "disks",
        "pd_standard_gib_month",
    ),
    "pd-balanced": price(
        "0.10",
        "month",
        "cloud.google.com/compute/disks-image-pricing: a GiB of pd-balanced",
        "disks",
        "pd_balanced_gib_month",
    ),
    "pd-ssd": price(
        "0.17", "month", "cloud.google.com/compute/disks-image-pricing: a GiB of pd-ssd", "disks", "pd_ssd_gib_month"
    ),
}
"""Zonal disks by their type. What Hyperdisk costs depends on its IOPS and throughput, and is not known here."""

_STORAGE = "cloud.google.com/storage/pricing, a Standard bucket of one region, the same in all regions: 1,000 requests"
STORE_WRITES = price("0.005", "1,000 requests", f"{_STORAGE} of class A")
STORE_READS = price("0.0004", "1,000 requests", f"{_STORAGE} of class B")
