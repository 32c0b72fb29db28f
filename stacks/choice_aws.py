"""The settings of a settings file on AWS."""

from choices import CloudChoice
from everspot import (
    AwsAccountSetup,
    AwsAccountSetupArgs,
    AwsBootstrap,
    AwsBootstrapArgs,
    AwsInstanceTypeArgs,
    AwsTrainingCluster,
    AwsTrainingClusterArgs,
)
from everspot.aws.account import account_problems
from everspot.aws.bootstrap import bootstrap_problems
from everspot.aws.checking import asked_zones, cluster_problems
from everspot.aws.lacking import LACKS
from everspot.aws.preview_queries import check_signed_in, zones_now

CHOICE = CloudChoice(
    bootstrap=AwsBootstrap,
    bootstrap_args=AwsBootstrapArgs,
    account=AwsAccountSetup,
    account_args=AwsAccountSetupArgs,
    cluster=AwsTrainingCluster,
    cluster_args=AwsTrainingClusterArgs,
    sign_in=check_signed_in,
    bootstrap_problems=bootstrap_problems,
    account_problems=account_problems,
    cluster_problems=cluster_problems,
    zones_now=zones_now,
    zone_problems=asked_zones,
    short={AwsInstanceTypeArgs: "type"},
    lacks=LACKS,
)
