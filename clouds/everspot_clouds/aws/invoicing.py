"""How AWS's bill speaks of instances, as values. Nothing here needs boto3.

Sources: Data Exports User Guide, table dictionaries of "FOCUS 1.2 with AWS columns" and of "CUR 2.0, line item columns"
and "resource tags columns"; Cost and Usage Report User Guide, "Line item details", for the kinds of lines.
"""

from types import MappingProxyType

from everspot_core.governance.invoicing import FOCUS_TABLE, BillTable, Invoicing

from everspot_clouds.aws.rules import CLUSTER_TAG

CUR_2 = BillTable(
    name="CUR 2.0",
    resource="line_item_resource_id",
    start="line_item_usage_start_date",
    end="line_item_usage_end_date",
    costs=MappingProxyType({"billed": "line_item_unblended_cost"}),
    currency="line_item_currency_code",
    charge="line_item_line_item_type",
    service="line_item_product_code",
    tags="resource_tags",
    meters=("line_item_usage_type",),
    charges=MappingProxyType(
        {
            "Usage": "Usage",
            "DiscountedUsage": "Usage",
            "SavingsPlanCoveredUsage": "Usage",
            "Fee": "Purchase",
            "RIFee": "Purchase",
            "SavingsPlanUpfrontFee": "Purchase",
            "SavingsPlanRecurringFee": "Purchase",
            "SavingsPlanNegation": "Credit",
            "Discount": "Credit",
            "EdpDiscount": "Credit",
            "PrivateRateDiscount": "Credit",
            "BundledDiscount": "Credit",
            "RiVolumeDiscount": "Credit",
            "SppDiscount": "Credit",
            "Credit": "Credit",
            "Refund": "Credit",
            "Tax": "Tax",
        }
    ),
    committed_words=("DiscountedUsage", "SavingsPlanCoveredUsage"),
)
"""`COST_AND_USAGE_REPORT` of Data Exports, hourly and with resources (`INCLUDE_RESOURCES`)."""

INVOICING = Invoicing(
    provider="AWS",
    issuer="Amazon Web Services, Inc.",
    service="Amazon Elastic Compute Cloud",
    transfer="AWS Data Transfer",
    billing_account_type="Account",
    sub_account_type="Account",
    meters=("SpotUsage", "BoxUsage"),
    # With the region's code in front and the type behind; by the side of it are DataTransfer, CPUCredits and more.
    hours=r"(?:[A-Z0-9]+-)?(?:BoxUsage|SpotUsage|DedicatedUsage|HostBoxUsage|ReservedHostUsage)(?::.*)?",
    # A bill names an instance by its id; tools that enrich bills, by its ARN.
    resource=r"(?:arn:aws[a-z-]*:ec2:[^:]*:[^:]*:instance/)?(i-[0-9a-z]+)",
    account=r"https?://[^/]+/(\d{12})/",
    account_pays=True,
    cluster_tag=CLUSTER_TAG,
    tag_prefixes=("user:", "user_"),
    tables=(FOCUS_TABLE, CUR_2),
)
