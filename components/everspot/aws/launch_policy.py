"""The scheduler's permissions in EC2 to launch agents and to end them, in a cluster with elastic capacity.

For a fleet of type instant, EC2 launches the instances in the caller's name and without EC2 Fleet's service-linked role
(Amazon EC2 User Guide, "EC2 Fleet prerequisites": "An instant EC2 Fleet does not require this role"). The caller
therefore needs CreateFleet, RunInstances, CreateTags and PassRole. Spot instances also need EC2 Spot's service-linked
role, which `AwsAccountSetup` makes once for the account. Both calls are checked for each resource that a launch uses or
makes (Service Authorization Reference, "Actions, resources, and condition keys for Amazon EC2", CreateFleet and
RunInstances; Karpenter's controller policy names the same ones). Resources that exist already are named by their ARN.
New ones are restricted to the cluster's launch template, and to the tags that the request gives them.
"""

from collections.abc import Sequence

from everspot_clouds.aws import rules
from everspot_clouds.aws.rules import CLUSTER_TAG, LAUNCH_TAG, ROLE_TAG
from everspot_core.jobs.records import Role

from everspot.aws.policies import Document, Statement, allow, document

LAUNCH = ["ec2:CreateFleet", "ec2:RunInstances"]


def launch_policy(
    *,
    cluster: str,
    template_arn: str,
    image_id: str,
    agent_role_arn: str,
    agent_profile_arn: str,
    subnet_ids: Sequence[str],
    security_group_ids: Sequence[str],
    volume_key_arns: Sequence[str] = (),
) -> Document:
    """Return the permissions to launch agents of this cluster and to terminate launched ones. `template_arn`: of the
    launch template, which also tells partition, region and account; `volume_key_arns`: customer keys of the volumes."""
    _, partition, _, region, account, *_ = f"{template_arn}:::::".split(":")
    ec2 = f"arn:{partition or 'aws'}:ec2:{region}"
    own = f"{ec2}:{account}"
    # A shared VPC's subnets and groups have the ARN of their owner's account (Amazon VPC User Guide, "Share your VPC
    # subnets with other accounts"); their ids are unique without it.
    resources = [f"{ec2}::image/{image_id}"]
    resources += [f"{ec2}:*:subnet/{subnet}" for subnet in subnet_ids]
    resources += [f"{ec2}:*:security-group/{group}" for group in security_group_ids]
    agents = {f"aws:RequestTag/{CLUSTER_TAG}": cluster, f"aws:RequestTag/{ROLE_TAG}": Role.AGENT.value}
    from_template = {"ec2:LaunchTemplate": template_arn}
    like_template = {"ec2:InstanceProfile": agent_profile_arn}
    statements = [
        allow("LaunchFromTheTemplate", LAUNCH, [template_arn]),
        allow("LaunchWithWhatItNames", LAUNCH, resources),
        allow("AskForAFleet", ["ec2:CreateFleet"], [f"{own}:fleet/*", f"{own}:instance/*"], StringEquals=agents),
        allow("AskForItsParts", ["ec2:CreateFleet"], [f"{own}:volume/*", f"{own}:network-interface/*"]),
        # CreateFleet is held to the template by its ARN above. AWS does not document whether the launches of an instant
        # fleet bear the key of their launch template, as those by RunInstances do: they are allowed either way. Without
        # the key, an instance has the profile and the metadata options of the template, and the image, network and
        # groups above.
        allow(
            "LaunchAgents", ["ec2:RunInstances"], [f"{own}:instance/*"], StringEquals=agents, ArnEquals=from_template
        ),
        allow(
            "LaunchAgentsOfAFleet",
            ["ec2:RunInstances"],
            [f"{own}:instance/*"],
            StringEquals={**agents, "ec2:MetadataHttpTokens": "required"},
            ArnEquals=like_template,
            Null={"ec2:LaunchTemplate": "true"},
        ),
        # These and the next two have no condition key for the launch template. They are useless without an instance.
        allow(
            "LaunchTheirParts",
            ["ec2:RunInstances"],
            [f"{own}:volume/*", f"{own}:network-interface/*"],
            ArnEqualsIfExists=from_template,
        ),
        # Reservations that match are used first; a Spot launch makes a request (Amazon EC2 API Reference, CreateFleet,
        # CapacityReservationOptions; Amazon EC2 User Guide, "Spot Instance request").
        allow("UseReservationsAndSpot", LAUNCH, [f"{own}:capacity-reservation/*", f"{own}:spot-instances-request/*"]),
        allow(
            # Tags at creation are a permission of their own (Amazon EC2 User Guide, "Grant permission to tag resources
            # during creation"). Nothing that exists is tagged by it.
            "TagWhatIsLaunched",
            ["ec2:CreateTags"],
            [f"{own}:{kind}/*" for kind in ("fleet", "instance", "volume")],
            StringEquals={
                f"aws:RequestTag/{CLUSTER_TAG}": cluster,
                f"aws:RequestTag/{ROLE_TAG}": Role.AGENT.value,
                "ec2:CreateAction": ["CreateFleet", "RunInstances"],
            },
        ),
        # Launching with an instance profile passes its role (IAM User Guide, "Grant a user permissions to pass a role
        # to an AWS service").
        allow(
            "PassTheAgentsRole",
            ["iam:PassRole"],
            [agent_role_arn],
            StringEquals={"iam:PassedToService": "ec2.amazonaws.com"},
        ),
        _terminate(cluster, own),
    ]
    return document([*statements, *_volume_keys(volume_key_arns, region)])


def _terminate(cluster: str, own: str) -> Statement:
    """Permits to terminate the agents of this cluster that a scheduler launched, but no scheduler, no standing instance
    and no instance of another cluster. Tags that the scheduler cannot change distinguish them."""
    return allow(
        "EndLaunchedAgents",
        ["ec2:TerminateInstances"],
        [f"{own}:instance/*"],
        StringEquals={
            f"aws:ResourceTag/{CLUSTER_TAG}": cluster,
            f"aws:ResourceTag/{ROLE_TAG}": Role.AGENT.value,
        },
        Null={f"aws:ResourceTag/{LAUNCH_TAG}": "false"},
    )


def _volume_keys(arns: Sequence[str], region: str) -> list[Statement]:
    """Return the permissions on a customer key that launches with its volumes need, through EC2 alone (Amazon EBS User
    Guide, "Requirements for Amazon EBS encryption": the permissions of users; AWS KMS Developer Guide, "kms:ViaService"
    and "kms:GrantIsForAWSResource")."""
    if not arns:
        return []
    # The guide names amazonaws.com alone; which form other partitions send is not documented for all of them.
    domains = sorted({"amazonaws.com", rules.dns_suffix(rules.partition(region))})
    services = [f"ec2.{region}.{domain}" for domain in domains]
    by_ec2 = {"kms:ViaService": services if len(services) > 1 else services[0]}
    use = ["Decrypt", "DescribeKey", "GenerateDataKeyWithoutPlaintext", "ReEncryptFrom", "ReEncryptTo"]
    return [
        allow("EncryptVolumes", [f"kms:{action}" for action in use], list(arns), StringEquals=by_ec2),
        allow(
            "LetEc2EncryptVolumes",
            ["kms:CreateGrant"],
            list(arns),
            StringEquals=by_ec2,
            Bool={"kms:GrantIsForAWSResource": "true"},
        ),
    ]
