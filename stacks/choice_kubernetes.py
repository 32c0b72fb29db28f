"""The settings of a settings file for a cluster inside an existing Kubernetes cluster on AWS."""

from choices import CloudChoice
from everspot import AwsKubernetesPool, AwsKubernetesPoolArgs, AwsKubernetesTypeArgs
from everspot.aws.preview_queries import check_signed_in, zones_now
from everspot.kubernetes.checking import add_zone_problems, pool_problems
from everspot.kubernetes.lacking import LACKS

CHOICE = CloudChoice(
    bootstrap=None,
    bootstrap_args=None,
    account=None,
    account_args=None,
    cluster=AwsKubernetesPool,
    cluster_args=AwsKubernetesPoolArgs,
    sign_in=check_signed_in,
    bootstrap_problems=None,
    account_problems=None,
    cluster_problems=pool_problems,
    zones_now=zones_now,
    zone_problems=add_zone_problems,
    short={AwsKubernetesTypeArgs: "type"},
    lacks=LACKS,
)
