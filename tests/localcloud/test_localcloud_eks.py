"""Pod identity associations, and the parameters of EKS's images, as AWS's own client asks for them."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from everspot_local.aws.pod_roles import PodRoles

ROLE = "arn:aws:iam::123456789012:role/{}".format
PARAMETER = (
    "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/"
    "amazon-eks-node-al2023-x86_64-standard-1.34-v20260115/image_id"
)


@pytest.fixture
def eks(kit: Any) -> Any:
    """A client of an account with one EKS cluster."""
    client = kit.client("eks")
    client.create_cluster(name="research", roleArn=ROLE("eks"), resourcesVpcConfig={"subnetIds": ["subnet-1"]})
    return client


def test_an_association_is_made_changed_and_deleted(eks: Any) -> None:
    names = {"clusterName": "research", "namespace": "training", "serviceAccount": "agent"}
    association = eks.create_pod_identity_association(**names, roleArn=ROLE("one"), tags={"Team": "vision"})[
        "association"
    ]
    assert {**names, "roleArn": ROLE("one"), "tags": {"Team": "vision"}}.items() <= association.items()
    with pytest.raises(ClientError) as conflict:
        eks.create_pod_identity_association(**names, roleArn=ROLE("two"))
    assert conflict.value.response["Error"]["Code"] == "ResourceInUseException"
    own = {"clusterName": "research", "associationId": association["associationId"]}
    eks.update_pod_identity_association(**own, roleArn=ROLE("two"))
    assert eks.describe_pod_identity_association(**own)["association"]["roleArn"] == ROLE("two")
    listed = eks.list_pod_identity_associations(clusterName="research", namespace="training")["associations"]
    assert [each["associationId"] for each in listed] == [association["associationId"]]
    assert not eks.list_pod_identity_associations(clusterName="research", namespace="other")["associations"]
    eks.delete_pod_identity_association(**own)
    with pytest.raises(ClientError) as deleted:
        eks.describe_pod_identity_association(**own)
    assert deleted.value.response["Error"]["Code"] == "ResourceNotFoundException"
    with pytest.raises(ClientError) as missing:
        eks.list_pod_identity_associations(clusterName="none")
    assert missing.value.response["Error"]["Code"] == "ResourceNotFoundException"


def test_an_access_entry_has_policies_until_they_are_taken_from_it(eks: Any) -> None:
    place = {"clusterName": "research", "principalArn": ROLE("preview")}
    policy = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSAdminViewPolicy"
    with pytest.raises(ClientError) as missing:
        eks.list_associated_access_policies(**place)
    assert missing.value.response["Error"]["Code"] == "ResourceNotFoundException"
    assert eks.create_access_entry(**place)["accessEntry"]["type"] == "STANDARD"
    with pytest.raises(ClientError) as conflict:
        eks.create_access_entry(**place)
    assert conflict.value.response["Error"]["Code"] == "ResourceInUseException"
    assert eks.list_associated_access_policies(**place)["associatedAccessPolicies"] == []
    eks.associate_access_policy(**place, policyArn=policy, accessScope={"type": "cluster"})
    (associated,) = eks.list_associated_access_policies(**place)["associatedAccessPolicies"]
    assert (associated["policyArn"], associated["accessScope"]["type"]) == (policy, "cluster")
    eks.disassociate_access_policy(**place, policyArn=policy)
    assert eks.list_associated_access_policies(**place)["associatedAccessPolicies"] == []
    with pytest.raises(ClientError) as gone:
        eks.disassociate_access_policy(**place, policyArn=policy)
    assert gone.value.response["Error"]["Code"] == "ResourceNotFoundException"


def test_pods_get_the_associated_role_if_it_trusts_them(kit: Any, eks: Any) -> None:
    roles = PodRoles(eks.meta.region_name, "research")
    assert roles.find("training", "agent") is roles.assume("training", "agent") is None
    statement = {
        "Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
        "Condition": {"StringEquals": {"aws:RequestTag/kubernetes-namespace": "training"}},
    }  # fmt: skip
    trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    kit.client("iam").create_role(RoleName="one", AssumeRolePolicyDocument=trust)
    for namespace in ("training", "other"):
        eks.create_pod_identity_association(
            clusterName="research", namespace=namespace, serviceAccount="agent", roleArn=ROLE("one")
        )
    assert roles.find("other", "agent") == ROLE("one") and roles.assume("other", "agent") is None
    credentials = roles.assume("training", "agent")
    assert credentials is not None and credentials["AccessKeyId"].startswith("ASIA")


def test_the_parameter_of_an_eks_image_names_an_image_that_ec2_describes(kit: Any) -> None:
    image = kit.client("ssm").get_parameter(Name=PARAMETER)["Parameter"]["Value"]
    (described,) = kit.client("ec2").describe_images(ImageIds=[image])["Images"]
    assert described["Architecture"] == "x86_64"
    with pytest.raises(ClientError):
        kit.client("ssm").get_parameter(Name=PARAMETER.replace("2023", "2"))
