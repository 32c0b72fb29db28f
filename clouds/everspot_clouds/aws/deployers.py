"""Permissions that `pulumi preview`, `up`, `refresh` and `destroy` need, as data.

`docs/reference/security.md` prints these tables. The tests with the real engine check every call against them. Some
permissions show in no call, because AWS checks them behind another call or only some settings need them; each of these
names its source.
"""

from collections.abc import Mapping

from everspot_clouds import deployer_tables


def _actions(**services: str) -> frozenset[str]:
    return frozenset(f"{service}:{action}" for service, actions in services.items() for action in actions.split())


PREVIEW = _actions(
    ec2="""DescribeAvailabilityZones DescribeImages DescribeInstanceTypeOfferings DescribeInstanceTypes
        DescribePrefixLists DescribeRouteTables DescribeSecurityGroups DescribeSubnets DescribeVpcAttribute
        DescribeVpcEndpoints DescribeVpcs GetEbsDefaultKmsKeyId GetInstanceUefiData""",
    iam="GetRole GetUser",
    kms="DescribeKey",
    s3="GetObject ListBucket",
    servicequotas="GetAWSDefaultServiceQuota GetServiceQuota",
    ssm="GetParameter",
    sts="GetCallerIdentity",
)
"""Calls of a preview of a cluster, of an existing network and of the account stack. All of them only read."""

PRICES = _actions(ec2="DescribeSpotPriceHistory", pricing="GetProducts")
"""Calls of a preview and of an `up` in a region without known prices. All of them only read."""

DEPLOY = _actions(
    autoscaling="""CreateAutoScalingGroup CreateOrUpdateTags DeleteAutoScalingGroup DeleteTags DescribeAutoScalingGroups
        DescribeScalingActivities StartInstanceRefresh UpdateAutoScalingGroup""",
    cloudwatch="""DeleteAlarms DeleteDashboards DescribeAlarms GetDashboard ListTagsForResource PutDashboard
        PutMetricAlarm TagResource""",
    ec2="""AllocateAddress AssociateRouteTable AttachInternetGateway AuthorizeSecurityGroupEgress
        AuthorizeSecurityGroupIngress CreateFleet CreateFlowLogs CreateInternetGateway CreateLaunchTemplate
        CreateLaunchTemplateVersion CreateNatGateway CreateRoute CreateRouteTable CreateSecurityGroup
        CreateSubnet CreateTags CreateVpc CreateVpcEndpoint DeleteFleets DeleteFlowLogs DeleteInternetGateway
        DeleteLaunchTemplate DeleteNatGateway DeleteRoute DeleteRouteTable DeleteSecurityGroup DeleteSubnet DeleteTags
        DeleteVpc DeleteVpcEndpoints DescribeAddresses DescribeAddressesAttribute DescribeFleets DescribeFlowLogs
        DescribeInternetGateways DescribeLaunchTemplateVersions DescribeLaunchTemplates DescribeNatGateways
        DescribeNetworkAcls DescribeNetworkInterfaces DescribeSecurityGroupRules
        DetachInternetGateway DisassociateAddress DisassociateRouteTable ModifyFleet ModifyLaunchTemplate
        ModifySecurityGroupRules ModifyVpcAttribute ModifyVpcEndpoint ReleaseAddress RevokeSecurityGroupEgress
        RevokeSecurityGroupIngress RunInstances""",
    events="""DeleteRule DescribeRule ListTagsForResource ListTargetsByRule PutRule PutTargets RemoveTargets
        TagResource UntagResource""",
    iam="""AddRoleToInstanceProfile CreateInstanceProfile CreateRole DeleteInstanceProfile DeleteRole DeleteRolePolicy
        GetInstanceProfile GetRolePolicy ListAttachedRolePolicies ListInstanceProfilesForRole ListRolePolicies PassRole
        PutRolePolicy RemoveRoleFromInstanceProfile TagInstanceProfile TagRole
        UntagInstanceProfile UntagRole""",
    s3="""CreateBucket DeleteBucket DeleteBucketPolicy DeleteObject DeleteObjectVersion GetAccelerateConfiguration
        GetBucketAcl GetBucketCORS GetBucketLogging GetBucketObjectLockConfiguration GetBucketPolicy
        GetBucketPublicAccessBlock GetBucketRequestPayment GetBucketVersioning GetBucketWebsite
        GetEncryptionConfiguration GetLifecycleConfiguration GetObjectTagging GetReplicationConfiguration
        ListBucketVersions ListTagsForResource PutBucketPolicy PutBucketPublicAccessBlock PutBucketVersioning
        PutEncryptionConfiguration PutLifecycleConfiguration PutObject TagResource UntagResource""",
    sqs="CreateQueue DeleteQueue GetQueueAttributes ListQueueTags SetQueueAttributes TagQueue UntagQueue",
)
"""Further calls of `up`, `refresh` and `destroy` of a cluster."""

DRIFT = frozenset(
    action for action in DEPLOY if action.partition(":")[2].startswith(("Describe", "Get", "List"))
) - _actions(
    autoscaling="DescribeScalingActivities",
    ec2="DescribeAddressesAttribute",
    iam="ListInstanceProfilesForRole",
    s3="ListBucketVersions",
) | _actions(ec2="DescribeInstances DescribeSpotPriceHistory DescribeTags DescribeVolumes", tag="GetResources")
"""Further calls of a refresh that changes nothing, and of the checks for resources that were added by hand or belong to
no stack: the reading calls of `DEPLOY`, without the ones before a deletion, and the calls of the last check alone."""

BOOTSTRAP = _actions(
    budgets="ListTagsForResource ViewBudget",
    ce="GetAnomalyMonitors GetAnomalySubscriptions ListCostAllocationTags ListTagsForResource",
    iam="GetOpenIDConnectProvider GetPolicy GetPolicyVersion",
    kms="GetKeyPolicy GetKeyRotationStatus ListAliases ListResourceTags",
)
"""Further calls of a refresh of the bootstrap stack. The Service Authorization Reference has those of `budgets` and
`ce` by these names, as List or Read, for any resource or for a budget, an anomaly monitor or an anomaly subscription.
`ViewBudget` covers DescribeBudget and the notifications of a budget."""

ACCOUNT = _actions(
    iam="CreateServiceLinkedRole TagRole",
    kms="CreateGrant ListGrants RevokeGrant",
)
"""Further calls of `up` and `destroy` of the account stack; those for grants only with `volumeKeyArns`. The roles are
never deleted."""

UNSEEN: Mapping[str, str] = {
    "iam:PassRole": "to `ec2.amazonaws.com`, for the roles of agents and scheduler: IAM API Reference, "
    "AddRoleToInstanceProfile; EC2 Auto Scaling User Guide, API permissions; Service Authorization Reference, EC2, "
    "RunInstances",
    "ec2:RunInstances, ec2:CreateTags": "the group and the fleets launch in the deployer's name: EC2 Auto Scaling User "
    "Guide, API permissions; Service Authorization Reference, EC2, CreateFleet and RunInstances",
    "iam:CreateServiceLinkedRole": "in the account stack; without that stack once for each of `ec2fleet`, `spot` and "
    "`autoscaling.amazonaws.com`: EC2 Auto Scaling User Guide, API permissions; EC2 User Guide, EC2 Fleet "
    "prerequisites",
    "route53:AssociateVPCWithHostedZone": "interface endpoints have private DNS: Service Authorization Reference, EC2, "
    "CreateVpcEndpoint",
    "logs:CreateLogDelivery, logs:DeleteLogDelivery": "with `flowLogBucketArn`: Amazon VPC User Guide, Publish flow "
    "logs to Amazon S3",
    "kms:GenerateDataKey, kms:Decrypt": "with `kmsKeyArn`, for the manifest in the control bucket: Amazon S3 User "
    "Guide, Using SSE-KMS",
    "ec2:CreateManagedPrefixList, ec2:DescribeManagedPrefixLists, ec2:GetManagedPrefixListEntries, "
    "ec2:ModifyManagedPrefixList, ec2:DeleteManagedPrefixList": "with `vpcId`: EC2 API Reference, by these names",
    ", ".join(sorted(PRICES)): "in a region that neither the project nor Everspot has prices of: AWS Price List API "
    "Reference and EC2 API Reference, by these names",
    "iam:PutRolePermissionsBoundary, iam:DeleteRolePermissionsBoundary": "where `permissionsBoundaryArn` changes: IAM "
    "API Reference, by these names",
    "cloudwatch:UntagResource": "where a tag is taken out of the settings: the services' API references",
    "iam:UpdateAssumeRolePolicy": "where a later release changes a role's trust: IAM API Reference, by this name",
}
"""Permissions that no call in the tests shows, each with AWS's documentation of it."""


def table() -> str:
    """Return the two tables of `docs/reference/security.md`, in Markdown."""
    return deployer_tables.table(PREVIEW, DEPLOY, ACCOUNT, UNSEEN, after=":", cell=_cell)


def _cell(service: str, actions: frozenset[str]) -> str:
    return ", ".join(sorted(a.partition(":")[2] for a in actions if a.startswith(f"{service}:")))
