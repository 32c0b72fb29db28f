"""The settings of a settings file on Google Cloud."""

from choices import CloudChoice
from everspot import (
    GcpAccountSetup,
    GcpAccountSetupArgs,
    GcpBootstrap,
    GcpBootstrapArgs,
    GcpInstanceTypeArgs,
    GcpTrainingCluster,
    GcpTrainingClusterArgs,
)
from everspot.gcp.account import account_problems
from everspot.gcp.bootstrap import bootstrap_problems
from everspot.gcp.checking import asked_zones, cluster_problems
from everspot.gcp.lacking import LACKS
from everspot.gcp.preview_queries import check_signed_in, zones_now

CHOICE = CloudChoice(
    bootstrap=GcpBootstrap,
    bootstrap_args=GcpBootstrapArgs,
    account=GcpAccountSetup,
    account_args=GcpAccountSetupArgs,
    cluster=GcpTrainingCluster,
    cluster_args=GcpTrainingClusterArgs,
    sign_in=check_signed_in,
    bootstrap_problems=bootstrap_problems,
    account_problems=account_problems,
    cluster_problems=cluster_problems,
    zones_now=zones_now,
    zone_problems=asked_zones,
    short={GcpInstanceTypeArgs: "type"},
    lacks=LACKS,
)
