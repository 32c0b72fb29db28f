"""The clouds on which an environment can be declared, by the word that its settings say."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from everspot import (
    AwsAccountSetup,
    AwsAccountSetupArgs,
    AwsInstanceTypeArgs,
    AwsTrainingCluster,
    AwsTrainingClusterArgs,
)
from everspot.aws.asking import check_signed_in


@dataclass(frozen=True)
class Cloud:
    """The components of one cloud: what exists once per account, a cluster, and the inputs of both.

    `sign_in` asks the cloud who asks, before anything else is asked or declared. `short`: inputs that can be written
    as their only mandatory text.
    """

    account: Callable[[str, Any], Any]
    account_args: type
    cluster: Callable[[str, Any], Any]
    cluster_args: type
    sign_in: Callable[[], None]
    short: dict[type, str]


CLOUDS = {
    "aws": Cloud(
        account=AwsAccountSetup,
        account_args=AwsAccountSetupArgs,
        cluster=AwsTrainingCluster,
        cluster_args=AwsTrainingClusterArgs,
        sign_in=check_signed_in,
        short={AwsInstanceTypeArgs: "type"},
    )
}
