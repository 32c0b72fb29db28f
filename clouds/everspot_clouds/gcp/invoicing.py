"""The rows of Google Cloud's bill about instances, as values. Nothing here needs a client.

Sources: Cloud Billing documentation, "Structure of FOCUS data export" and "Structure of Detailed data export": the
resource is the field `resource.global_name`, whose end is the instance's numeric id; a bill has one row for each SKU of
an instance and hour (cores, memory, accelerators), and labels as lists of keys and values.
"""

from dataclasses import replace

from everspot_core.governance.invoicing import FOCUS_TABLE, Invoicing

from everspot_clouds.gcp.rules import CLUSTER_LABEL

FOCUS = replace(FOCUS_TABLE, meters=("SkuMeter", "ChargeDescription"), tags_beside=("x_Labels",))
"""The SKU is in the description where no meter is named, and labels may stand apart from tags."""

INVOICING = Invoicing(
    provider="Google Cloud",
    issuer="Google Cloud",
    service="Compute Engine",
    transfer="Cloud Storage",
    billing_account_type="Billing Account",
    sub_account_type="Project",
    meters=("Spot", "On-demand"),
    # Cores, memory and accelerators are the instance's time; its traffic is billed under the same resource.
    hours=r"(?i)(?!.*(?:egress|ingress|network|transfer|snapshot|licens(?:e|ing)|external ip)).*",
    resource=r"(?:(?://)?compute\.googleapis\.com/projects/[^/]+/zones/[^/]+/instances?/)?(\d+)",
    account="",
    account_pays=False,
    cluster_tag=CLUSTER_LABEL,
    tag_prefixes=(),
    tables=(FOCUS,),
)
