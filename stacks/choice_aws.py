"""What a settings file may declare on AWS."""

from typing import Any

from choices import Cloud
from everspot import (
    AwsAccountSetup,
    AwsAccountSetupArgs,
    AwsInstanceTypeArgs,
    AwsTrainingCluster,
    AwsTrainingClusterArgs,
)
from everspot.aws.account import account_problems
from everspot.aws.asking import check_signed_in, zones_now
from everspot.aws.checking import asked_zones, cluster_problems
from everspot.aws.lacking import LACKS
from everspot_core.problems import Problems


def _account(problems: Problems, _: str, args: Any) -> None:
    account_problems(problems, args)


def _cluster(problems: Problems, name: str, args: Any) -> None:
    cluster_problems(problems, name, args)
    asked_zones(problems, args, zones_now())


CLOUD = Cloud(
    account=AwsAccountSetup,
    account_args=AwsAccountSetupArgs,
    cluster=AwsTrainingCluster,
    cluster_args=AwsTrainingClusterArgs,
    sign_in=check_signed_in,
    problems={"account": _account, "cluster": _cluster},
    short={AwsInstanceTypeArgs: "type"},
    lacks=LACKS,
)
