"""The permissions of the identities of reviews on AWS, and the boundary of the roles that deployments make. Pure
functions.

The lists of calls are those of `deployers`, which the tests with the real engine compare with its calls.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from everspot_clouds.aws import deployers
from everspot_clouds.aws.rules import CLUSTER_TAG, FLEET_ROLE, SCALING_ROLE, SPOT_ROLE

from everspot.aws.policies import PULL, Document, Statement, allow, document
from everspot.repository import ISSUER, RepositoryArgs, ReviewPart, merged_ref, subjects

PROVIDER = ISSUER.removeprefix("https://")
AUDIENCE = "sts.amazonaws.com"
CLUSTERS = "everspot-*"
"""The prefix of the names of clusters' resources: `everspot-` and the stack's name."""

CONTROL = "arn:{partition}:s3:::everspot-*-store-control-*"
"""The control buckets of clusters. A preview asks them for running jobs, and a refresh for `cluster.json`."""

PASSED_TO = ("ec2.amazonaws.com",)
PODS = "pods.eks.amazonaws.com"
"""Takes the roles of pods (Amazon EKS User Guide, "Assign an IAM role to a Kubernetes service account")."""
LINKED = tuple(service for service, _ in (FLEET_ROLE, SPOT_ROLE, SCALING_ROLE))

OWN = {f"aws:ResourceTag/{CLUSTER_TAG}": CLUSTERS}
"""The condition for existing resources of a cluster. Calls that support it: Service Authorization Reference, Amazon
EC2."""

MADE = {f"aws:RequestTag/{CLUSTER_TAG}": CLUSTERS}
"""The condition for new resources of a cluster."""

NAMED = {"autoscaling": "autoScalingGroup:*:autoScalingGroupName/", "events": "rule/", "sqs": ""}
"""Services whose calls that write are checked for one resource by its name, and what stands before that in its ARN
(Service Authorization Reference)."""

TEMPLATES = ("ec2:CreateLaunchTemplateVersion", "ec2:DeleteLaunchTemplate", "ec2:ModifyLaunchTemplate")

BOUNDED = (
    *("ec2:CreateFleet", "ec2:DescribeAvailabilityZones", "ec2:DescribeInstances", "ec2:DescribeSpotPriceHistory"),
    *("ec2:GetSpotPlacementScores", "ec2:RunInstances", "sns:Publish", "cloudwatch:PutMetricData"),
    *("ssm:UpdateInstanceInformation", "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel"),
    *("ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel", "ecr:GetAuthorizationToken"),
)
"""What a role of a cluster is ever allowed, on whatever resource its own policies name."""

OBJECTS = ("s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:ListBucket", "s3:PutObject")
FURTHER_OBJECTS = ("s3:GetObject", "s3:ListBucket")
SECRETS = ("secretsmanager:GetSecretValue", "ssm:GetParameter")
KEYS = (
    *("kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey"),
    *("kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"),
)
"""What a role of a cluster is ever allowed on what it may name: its buckets, further ones, secrets, keys."""

EKS_READS = ("eks:DescribeCluster", "eks:DescribePodIdentityAssociation", "eks:ListPodIdentityAssociations")
EKS_WRITES = (
    *("eks:CreatePodIdentityAssociation", "eks:DeletePodIdentityAssociation", "eks:UpdatePodIdentityAssociation"),
    *("eks:TagResource", "eks:UntagResource"),
)

STATE_READ, STATE_WRITE = ("s3:GetObject",), ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
KEY_USE = {
    ReviewPart.PREVIEW: ("kms:Decrypt",),
    ReviewPart.DRIFT: ("kms:Decrypt",),
    ReviewPart.DEPLOY: ("kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"),
}
"""What each part does with the state's key: stacks' secrets, and the bucket's own encryption."""


@dataclass(frozen=True)
class BootstrapPlace:
    """The account and the names of the identities. `bucket`, `key`: ARNs of the state's; `name`: how the names of the
    bootstrap's own roles and policies begin; `stack`: the bootstrap's own stack; `keys`: ARNs of clusters' customer
    keys; `buckets`: of further buckets that jobs read; `secrets`: of what jobs may read, None for names that begin with
    `everspot`; `repositories`: of ECR, with images of jobs; `images`: of parameters with ids of images, besides those
    under `/everspot/image/`; `eks_clusters`: the names of EKS clusters in which clusters are declared."""

    partition: str
    account: str
    name: str
    stack: str
    bucket: str
    key: str
    keys: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()
    secrets: tuple[str, ...] | None = None
    repositories: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    eks_clusters: tuple[str, ...] = ()

    def iam(self, resource: str) -> str:
        """Return the ARN of something of IAM in this account."""
        return f"arn:{self.partition}:iam::{self.account}:{resource}"

    def build_arn(self, service: str, resource: str) -> str:
        """Return the ARN of something in this account, in whatever region."""
        return f"arn:{self.partition}:{service}:*:{self.account}:{resource}"

    @property
    def boundary(self) -> str:
        """The ARN of the permissions boundary."""
        return self.iam(f"policy/{self.name}-boundary")


Written = Callable[[BootstrapPlace], Document]
"""Writes a policy's document."""


def trust(provider: str, repository: RepositoryArgs | None, part: ReviewPart, roles: Sequence[str]) -> Document:
    """Return the trust policy of a part's role: jobs of one repository by their identity tokens, and the runners' own
    roles. `provider`: ARN of the forge's identity provider; `roles`: ARNs of runners' roles.

    All of a condition has to hold, and a claim that is absent equals nothing.
    """
    statements: list[Statement] = []
    if repository is not None:
        claims = {f"{PROVIDER}:aud": AUDIENCE, f"{PROVIDER}:sub": subjects(repository, part)}
        if "id" in repository:
            claims[f"{PROVIDER}:repository_id"] = repository["id"]
        if part is ReviewPart.DEPLOY:
            claims[f"{PROVIDER}:ref"] = merged_ref(repository)
        statements.append(
            {
                "Sid": "JobsOfTheRepository",
                "Effect": "Allow",
                "Principal": {"Federated": provider},
                "Action": "sts:AssumeRoleWithWebIdentity",
                "Condition": {"StringEquals": claims},
            }
        )
    if roles:
        runner = {"Principal": {"AWS": list(roles)}, "Action": "sts:AssumeRole"}
        statements.append({"Sid": "Runners", "Effect": "Allow", **runner})
    return document(statements)


def reading(place: BootstrapPlace, part: ReviewPart) -> Document:
    """Return the permissions of a preview, or of a look for drift, to read. No statement of them writes."""
    actions = (
        deployers.PREVIEW | deployers.PRICES
        if part is ReviewPart.PREVIEW
        else deployers.PREVIEW | deployers.PRICES | deployers.DRIFT | deployers.BOOTSTRAP
    )
    objects = {action for action in actions if action in ("s3:GetObject", "s3:GetObjectTagging", "s3:ListBucket")}
    control = CONTROL.format(partition=place.partition)
    images = [place.build_arn("ssm", "parameter/everspot/image/*"), *place.images]
    images.append(f"arn:{place.partition}:ssm:*::parameter/aws/service/*")  # public: of no account
    statements = [
        allow("Look", sorted(actions - objects - {"ssm:GetParameter"}), ["*"]),
        allow("ReadIdsOfImages", ["ssm:GetParameter"], images),  # other parameters may be secrets
        allow("AskForRunningJobs", sorted(objects), [control, f"{control}/*"]),
    ]
    if part is not ReviewPart.PREVIEW:  # a refresh asks whether each bucket is there, which is a listing to IAM
        statements.append(allow("SeeBuckets", ["s3:ListBucket"], [f"arn:{place.partition}:s3:::{CLUSTERS}"]))
    return document(statements)


def state(place: BootstrapPlace, part: ReviewPart) -> Document:
    """Return the permissions of a part on the state. Only the person who applies the bootstrap's stack by hand writes
    its state."""
    actions = STATE_WRITE if part is ReviewPart.DEPLOY else STATE_READ
    statements = [
        allow("ListState", ["s3:ListBucket"], [place.bucket]),
        allow("UseState", list(actions), [f"{place.bucket}/*"]),
        allow("UseTheKey", list(KEY_USE[part]), [place.key]),
    ]
    if part is ReviewPart.DEPLOY:
        own = [f"{place.bucket}/.pulumi/*/{place.stack}{end}" for end in (".json*", "/*")]
        statements.append(_deny("NotTheBootstrapsOwn", ["s3:PutObject", "s3:DeleteObject"], own))
    return document(statements)


def writing(place: BootstrapPlace) -> Document:
    """Return what a deployment does besides what a look for drift reads, apart from IAM. Buckets, queues, EventBridge's
    rules, Auto Scaling groups, launch templates and fleets are those of clusters, by their names or their tag.

    A principal that adds a version to a launch template runs its own code in the launched instances, under their role.
    Tags decide, so no existing resource may get a cluster's tag.
    """
    actions = _writes(lambda service: service not in ("iam", "s3", "kms"))
    by_name = [call for call in actions if call.partition(":")[0] in NAMED and ":Describe" not in call]
    actions = [action for action in actions if action not in (*by_name, *TEMPLATES, "ec2:CreateLaunchTemplate")]
    resources = [place.build_arn(service, f"{kind}{CLUSTERS}") for service, kind in NAMED.items()]
    templates, fleets, instances = (
        place.build_arn("ec2", f"{kind}/*") for kind in ("launch-template", "fleet", "instance")
    )
    buckets = f"arn:{place.partition}:s3:::{CLUSTERS}"
    statements = [
        allow("Deploy", actions, ["*"]),
        allow("DeployByName", by_name, resources),
        allow("MakeTemplates", ["ec2:CreateLaunchTemplate"], [templates], StringLike=MADE),
        allow("ChangeTemplates", list(TEMPLATES), [templates], StringLike=OWN),
        # As denials, because these calls are also checked for resources that bear no such tag.
        _deny("NotOthersFleets", ["ec2:DeleteFleets", "ec2:ModifyFleet"], [fleets], StringNotLike=OWN),
        _deny(
            "TagNothingOfOthers",
            ["ec2:CreateTags", "ec2:DeleteTags"],
            [templates, fleets, instances],
            StringNotLike=OWN,
            Null={"ec2:CreateAction": "true"},
        ),
        allow("MakeBuckets", _writes(lambda service: service == "s3"), [buckets, f"{buckets}/*"]),
        _deny("NotTheState", ["s3:Delete*", "s3:Put*", "s3:TagResource", "s3:UntagResource"], [place.bucket]),
        _deny("NotWhatItWas", ["s3:DeleteObjectVersion"], [f"{place.bucket}/*"]),
    ]
    if place.keys:
        granted = {action for action in deployers.ACCOUNT if action.startswith("kms:")}
        statements.append(
            allow("UseClustersKeys", sorted(granted | {"kms:Decrypt", "kms:GenerateDataKey"}), list(place.keys))
        )
    return document(statements)


def identities(place: BootstrapPlace) -> Document:
    """Return the permissions of a deployment in IAM: roles of clusters, all within the boundary."""
    roles, profiles = place.iam(f"role/{CLUSTERS}"), place.iam(f"instance-profile/{CLUSTERS}")
    linked = place.iam("role/aws-service-role/*")
    bounded = {"iam:PermissionsBoundary": place.boundary}
    making = ["iam:CreateRole", "iam:PutRolePermissionsBoundary", "iam:PutRolePolicy"]
    passing, linking = "iam:PassRole", "iam:CreateServiceLinkedRole"
    others = [a for a in _writes(lambda service: service == "iam") if a not in (*making, passing, linking)]
    others = [action for action in others if action != "iam:DeleteRolePermissionsBoundary"]
    statements = [
        allow("MakeBoundedRoles", making, [roles], StringEquals=bounded),
        allow("KeepThem", others, [roles, profiles]),
        allow("PassThem", [passing], [roles], StringEquals={"iam:PassedToService": list(PASSED_TO)}),
        allow("MakeLinkedRoles", [linking], [linked], StringEquals={"iam:AWSServiceName": list(LINKED)}),
        allow("TagThem", ["iam:TagRole"], [linked]),
        _deny("NotTheBootstrapsOwn", ["iam:*"], [place.iam(f"{kind}/{place.name}-*") for kind in ("role", "policy")]),
        _deny("NotTheProvider", ["iam:*"], [place.iam("oidc-provider/*")]),
    ]
    return document(statements)


def kubernetes(place: BootstrapPlace, part: ReviewPart) -> Document:
    """Return the permissions of a part on the EKS clusters that the bootstrap names: to find them, and for a deployment
    to associate clusters' roles with service accounts (Service Authorization Reference, Amazon EKS). What a part may do
    inside is the Kubernetes cluster's to say."""
    named = [
        place.build_arn("eks", f"{kind}/{name}{end}")
        for name in place.eks_clusters
        for kind, end in (("cluster", ""), ("podidentityassociation", "/*"))
    ]
    statements = [allow("LookAtKubernetes", list(EKS_READS), named)]
    if part is ReviewPart.DEPLOY:
        passed = {"iam:PassedToService": PODS}
        statements.append(allow("AssociatePods", list(EKS_WRITES), named))
        statements.append(
            allow("PassRolesToPods", ["iam:PassRole"], [place.iam(f"role/{CLUSTERS}")], StringEquals=passed)
        )
    return document(statements)


def boundary(place: BootstrapPlace) -> Document:
    """Return the most that a role of a cluster may do, whatever its policies say: never the state, its key or the
    bootstrap's own roles; and no bucket, secret or key but clusters' own and the ones that the bootstrap names.

    Deployments write the policies of these roles, and their trust policies, within this boundary.
    """
    roles = place.iam(f"role/{CLUSTERS}")
    secrets = place.secrets
    if secrets is None:
        secrets = (place.build_arn("secretsmanager", "secret:everspot*"), place.build_arn("ssm", "parameter/everspot*"))
    grants = (
        ("KeepBuckets", OBJECTS, _and_objects([f"arn:{place.partition}:s3:::{CLUSTERS}"])),
        ("ReadFurtherBuckets", FURTHER_OBJECTS, _and_objects(place.buckets)),
        ("ReadSecrets", SECRETS, secrets),
        ("PullImages", PULL, place.repositories),
        ("UseKeys", KEYS, place.keys),
    )
    statements = [
        allow("WhatClustersDo", sorted(BOUNDED), ["*"]),
        *(allow(sid, list(actions), list(resources)) for sid, actions, resources in grants if resources),
        # Keys that AWS manages: nobody else's alias begins so, and each is used by its own service alone, for who may
        # use that (AWS KMS Developer Guide, "kms:ResourceAliases", "AWS managed keys"). A policy of such a key that
        # grants to everybody in the account may not pass a boundary that is silent.
        allow("UseKeysOfAws", list(KEYS), ["*"], **{"ForAnyValue:StringLike": {"kms:ResourceAliases": "alias/aws/*"}}),
        allow("HearInterruptions", ["sqs:DeleteMessage", "sqs:ReceiveMessage"], [place.build_arn("sqs", CLUSTERS)]),
        allow("EndInstances", ["ec2:TerminateInstances"], ["*"], StringLike=OWN),
        allow("TagWhatIsLaunched", ["ec2:CreateTags"], ["*"], Null={"ec2:CreateAction": "false"}),
        allow("TagVolumes", ["ec2:CreateTags"], [place.build_arn("ec2", "volume/*")], StringLike=MADE),
        allow("PassRoles", ["iam:PassRole"], [roles], StringEquals={"iam:PassedToService": list(PASSED_TO)}),
        allow("BecomeAJob", ["sts:AssumeRole", "sts:TagSession"], [roles]),
        allow("VisitPeers", ["sts:AssumeRole"], [f"arn:{place.partition}:iam::*:role/everspot-visit-*"]),
        _deny("NotTheState", ["s3:*"], [place.bucket, f"{place.bucket}/*"]),
        _deny("NotItsKey", ["kms:*"], [place.key]),
        _deny("NotTheBootstrapsOwn", ["iam:*", "sts:*"], [place.iam(f"role/{place.name}-*")]),
    ]
    return document(statements)


def documents(part: ReviewPart, eks_clusters: Sequence[str] = ()) -> dict[str, Written]:
    """Return the policies of a part's role, by the end of their names. A policy has at most 6,144 characters.
    `eks_clusters`: as of `BootstrapPlace`."""
    common: dict[str, Written] = {"state": lambda place: state(place, part)}
    if eks_clusters:
        common["kubernetes"] = lambda place: kubernetes(place, part)
    if part is not ReviewPart.DEPLOY:
        return {**common, "reads": lambda place: reading(place, part)}
    reads: Written = lambda place: reading(place, ReviewPart.DRIFT)  # noqa: E731 - one of a table
    return {**common, "reads": reads, "writes": writing, "identities": identities}


def key_policy(account: str, partition: str) -> Document:
    """Return the policy of the state's key, which leaves access to the account's IAM (AWS KMS Developer Guide, "Default
    key policy")."""
    owner = {"Principal": {"AWS": f"arn:{partition}:iam::{account}:root"}, "Action": "kms:*", "Resource": "*"}
    return document([{"Sid": "IamDecides", "Effect": "Allow", **owner}])


def _writes(selects: Callable[[str], bool]) -> list[str]:
    """Return the calls of a deployment that a check for drift does not make, of some services, including calls that no
    test records."""
    unseen = {call for names in deployers.UNSEEN for call in names.split(", ")}
    read = deployers.PREVIEW | deployers.PRICES | deployers.DRIFT
    actions = (deployers.DEPLOY | deployers.ACCOUNT | unseen) - read
    return sorted(action for action in actions if selects(action.partition(":")[0]))


def _and_objects(buckets: Iterable[str]) -> list[str]:
    return [resource for arn in buckets for resource in (arn, f"{arn}/*")]


def _deny(sid: str, actions: Iterable[str], resources: Iterable[str], **conditions: dict[str, str]) -> Statement:
    condition = {"Condition": conditions} if conditions else {}
    return {"Sid": sid, "Effect": "Deny", "Action": list(actions), "Resource": list(resources), **condition}
