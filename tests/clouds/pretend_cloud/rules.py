"""The pretend cloud's rules, as values."""

from datetime import timedelta

from everspot_core.costs.billing import BillingRules
from everspot_core.governance.invoicing import FOCUS_TABLE, Invoicing
from everspot_core.jobs.job_rules import CloudRules

NOTICE = timedelta(seconds=30)
BILLING = BillingRules(minimum=timedelta(minutes=1), free_within=None, left_out=("the weather",))
JOBS = CloudRules(variables=("PRETEND_",), secrets={"vault:NAME": "vault:[a-z]+"})
INVOICING = Invoicing(
    provider="Pretence", issuer="Pretence", service="Pretended Compute", transfer="Pretended Traffic",
    billing_account_type="Account", sub_account_type="Account", meters=("Spot", "Usual"), hours=".*",
    resource=r"(p-\d+)",
    account="", account_pays=True, cluster_tag="pretend-cluster", tag_prefixes=(), tables=(FOCUS_TABLE,),
)  # fmt: skip
