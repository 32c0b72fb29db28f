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
from everspot.aws.account import account_problems
from everspot.aws.asking import check_signed_in, zones_now
from everspot.aws.checking import asked_zones, cluster_problems
from everspot_core.problems import Problems


@dataclass(frozen=True)
class Cloud:
    """The components of one cloud: what exists once per account, a cluster, and the inputs of both.

    `sign_in` asks the cloud who asks, before anything else is asked or declared. `problems`: what adds the
    problems that the components themselves see in a section of this name, given the cluster's name and its inputs.
    `short`: inputs that can be written as their only mandatory text.
    """

    account: Callable[[str, Any], Any]
    account_args: type
    cluster: Callable[[str, Any], Any]
    cluster_args: type
    sign_in: Callable[[], None]
    problems: dict[str, Callable[[Problems, str, Any], None]]
    short: dict[type, str]


def _account(problems: Problems, _: str, args: Any) -> None:
    account_problems(problems, args)


def _cluster(problems: Problems, name: str, args: Any) -> None:
    cluster_problems(problems, name, args)
    asked_zones(problems, args, zones_now())


CLOUDS = {
    "aws": Cloud(
        account=AwsAccountSetup,
        account_args=AwsAccountSetupArgs,
        cluster=AwsTrainingCluster,
        cluster_args=AwsTrainingClusterArgs,
        sign_in=check_signed_in,
        problems={"account": _account, "cluster": _cluster},
        short={AwsInstanceTypeArgs: "type"},
    )
}
