"""What a settings file may declare on AWS."""

from choices import CloudChoice
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

CHOICE = CloudChoice(
    account=AwsAccountSetup,
    account_args=AwsAccountSetupArgs,
    cluster=AwsTrainingCluster,
    cluster_args=AwsTrainingClusterArgs,
    sign_in=check_signed_in,
    account_problems=account_problems,
    cluster_problems=cluster_problems,
    zones_now=zones_now,
    zone_problems=asked_zones,
    short={AwsInstanceTypeArgs: "type"},
    lacks=LACKS,
)
