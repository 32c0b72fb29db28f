"""The account component on AWS: it declares both service-linked roles unless they exist."""

from collections.abc import Callable
from typing import Any

import everspot
from everspot import AwsTrainingClusterArgs

Declare = Callable[..., tuple[Any, dict[str, Any]]]


def test_the_account_gets_both_service_linked_roles_unless_it_has_them(
    declare: Declare, spec: AwsTrainingClusterArgs
) -> None:
    def account(**more: bool) -> Any:
        args: Any = {"tags": spec["tags"], **more}
        return declare(lambda: {"r": everspot.AwsAccountSetup("account", args).spot_role_name})[0]

    roles = account().of_type("aws:iam/serviceLinkedRole:ServiceLinkedRole")
    assert {r.inputs["awsServiceName"] for r in roles} == {"ec2fleet.amazonaws.com", "spot.amazonaws.com"}
    assert len(account(spot_role=False).of_type("aws:iam/serviceLinkedRole:ServiceLinkedRole")) == 1


def test_roles_that_exist_are_taken_over_and_left_behind_and_keys_of_volumes_are_granted(
    declare: Declare, spec: AwsTrainingClusterArgs
) -> None:
    key = "arn:aws:kms:eu-west-1:111122223333:key/k"
    args: Any = {"tags": spec["tags"], "volume_key_arns": [key]}
    recorder, _ = declare(lambda: {"r": everspot.AwsAccountSetup("account", args).spot_role_name})
    roles = recorder.of_type("aws:iam/serviceLinkedRole:ServiceLinkedRole")
    assert {r.inputs["awsServiceName"].split(".")[0] for r in roles} == {"ec2fleet", "spot", "autoscaling"}
    grants = recorder.of_type("aws:kms/grant:Grant")
    assert {g.inputs["granteePrincipal"] for g in grants} == {f"arn:{r.name}" for r in roles}
    assert all(g.inputs["keyId"] == key and "CreateGrant" in g.inputs["operations"] for g in grants)
    assert recorder.calls.count("aws:iam/getRole:getRole") == 3
