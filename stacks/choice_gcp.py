"""What a settings file may declare on Google Cloud."""

from typing import Any

from choices import Cloud
from everspot import (
    GcpAccountSetup,
    GcpAccountSetupArgs,
    GcpInstanceTypeArgs,
    GcpTrainingCluster,
    GcpTrainingClusterArgs,
)
from everspot.gcp.account import account_problems
from everspot.gcp.asking import check_signed_in, zones_now
from everspot.gcp.checking import asked_zones, cluster_problems
from everspot.gcp.lacking import LACKS
from everspot_core.problems import Problems


def _account(problems: Problems, _: str, args: Any) -> None:
    account_problems(problems, args)


def _cluster(problems: Problems, name: str, args: Any) -> None:
    cluster_problems(problems, name, args)
    asked_zones(problems, args, zones_now())


CLOUD = Cloud(
    account=GcpAccountSetup,
    account_args=GcpAccountSetupArgs,
    cluster=GcpTrainingCluster,
    cluster_args=GcpTrainingClusterArgs,
    sign_in=check_signed_in,
    problems={"account": _account, "cluster": _cluster},
    short={GcpInstanceTypeArgs: "type"},
    lacks=LACKS,
)
