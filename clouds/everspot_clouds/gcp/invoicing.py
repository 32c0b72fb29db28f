"""How Google Cloud's bill speaks of instances, as values. Nothing here needs a client.

Sources: Cloud Billing documentation, "Structure of FOCUS data export" and "Structure of Detailed data export": the
resource is the field `resource.global_name`, whose end is the instance's numeric id; a bill has one row for each SKU of
an instance and hour (cores, memory, accelerators), and labels as lists of keys and values.
"""

from everspot_core.governance.invoicing import FOCUS_TABLE, Invoicing

from everspot_clouds.gcp.rules import CLUSTER_LABEL

INVOICING = Invoicing(
    provider="Google Cloud",
    issuer="Google Cloud",
    service="Compute Engine",
    transfer="Cloud Storage",
    billing_account_type="Billing Account",
    sub_account_type="Project",
    meters=("Spot", "On-demand"),
    resource=r"(?:(?://)?compute\.googleapis\.com/projects/[^/]+/zones/[^/]+/instances?/)?(\d+)",
    account="",
    cluster_tag=CLUSTER_LABEL,
    tag_prefixes=(),
    tables=(FOCUS_TABLE,),
)
