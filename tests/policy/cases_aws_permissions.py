"""Cases for AWS: permissions, and trust in roles."""

from aws_values import BUCKET, FEDERATED, GITHUB, LATEST, ONE, ROLE, ROLE_TRUST, TAGS, TLS
from cases import Cases, allow, document
from everspot_core.cluster.declared import UNKNOWN

c = Cases()

c.select("aws-policy-not-for-everybody", "aws:sqs/queuePolicy:QueuePolicy")
EVENTS = {"Service": "events.amazonaws.com"}
c.good({"policy": document(allow("sqs:SendMessage", Principal=EVENTS))}, {"policy": UNKNOWN}, {"policy": "no document"})
c.good(
    {"policy": document(allow("sqs:SendMessage", Principal="*", Condition={"ArnEquals": {"aws:SourceArn": ["arn:a"]}}))}
)
SEND = allow("sqs:SendMessage", Principal={"AWS": "*"})
c.bad({"queueUrl": "https://sqs.us-east-1.amazonaws.com/1/q", "policy": document(TLS, SEND)}, "policy.Statement[1]")
c.bad(
    {"policy": document({**SEND, "Condition": {"StringNotEquals": {"aws:SourceArn": "a"}}})},
    "policy.Statement[0]",
    engine=False,
)
c.bad(
    {"policy": document({**SEND, "Condition": {"ArnLike": {"aws:SourceArn": "*"}}})},
    "policy.Statement[0]",
    engine=False,
)
BY_ACCOUNT = {"ArnLike": {"aws:SourceArn": "arn:aws:events:us-east-1:123456789012:rule/*"}}
BY_BUCKET = {"ArnLike": {"aws:SourceArn": "arn:aws:s3:::acme-data*"}}
BY_PATH = {"ForAnyValue:StringLike": {"aws:PrincipalOrgPaths": "o-a1b2/r-ab12/*"}}
BY_ITSELF = {"StringEquals": {"aws:PrincipalAccount": "${aws:ResourceAccount}"}}
c.good(*({"policy": document({**SEND, "Condition": each})} for each in (BY_ACCOUNT, BY_BUCKET, BY_PATH, BY_ITSELF)))
for condition in (
    {"StringLike": {"aws:PrincipalArn": "arn:aws:iam::*:*"}},
    {"ArnLike": {"aws:SourceArn": "arn:*:*:*:*:*"}},
    {"ArnLike": {"aws:SourceArn": ["arn:aws:s3:::acme-data", "arn:aws:s3:::*"]}},
    {"StringLike": {"aws:PrincipalOrgID": "o-*"}},
    {"StringEquals": {"aws:PrincipalArn": "${aws:PrincipalArn}"}},
    {"Null": {"aws:SourceArn": "true"}},
    {"ForAllValues:StringEquals": {"aws:PrincipalAccount": "123456789012"}},
):
    c.bad({"policy": document({**SEND, "Condition": condition})}, "policy.Statement[0]", engine=False)
c.select("aws-policy-not-for-everybody", BUCKET).good({"policy": document(TLS)}).bad(
    {"policy": document(allow("s3:GetObject", Principal="*"))}, "policy.Statement[0]", engine=False
)
c.select("aws-policy-not-for-everybody", "aws:kms/key:Key")
c.good({"policy": document(allow("kms:*", Principal={"AWS": "arn:aws:iam::123456789012:root"}))})
c.bad(
    {"enableKeyRotation": True, "tags": TAGS, "policy": document(allow("kms:*", Principal="*"))}, "policy.Statement[0]"
)

EVERYTHING = document(allow(Principal="*"))
for open_type, field in (
    ("aws:s3control/accessPointPolicy:AccessPointPolicy", "policy"),
    ("aws:efs/fileSystemPolicy:FileSystemPolicy", "policy"),
    ("aws:opensearch/domain:Domain", "accessPolicies"),
    ("aws:s3tables/tableBucketPolicy:TableBucketPolicy", "resourcePolicy"),
    ("aws:cloudwatch/logResourcePolicy:LogResourcePolicy", "policyDocument"),
):
    c.select("aws-policy-not-for-everybody", open_type).good({field: UNKNOWN}, {field: document(TLS)})
    c.bad({field: EVERYTHING}, f"{field}.Statement[0]", engine=False)
c.select("aws-policy-not-for-everybody", "aws:s3control/multiRegionAccessPointPolicy:MultiRegionAccessPointPolicy").bad(
    {"details": {"name": "a", "policy": EVERYTHING}}, "details.policy.Statement[0]", engine=False
)
c.select("aws-policy-not-for-everybody", "aws:efs/fileSystemPolicy:FileSystemPolicy")
MOUNTED = {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}}
c.good({"policy": document(allow("elasticfilesystem:ClientMount", Principal={"AWS": "*"}, Condition=MOUNTED))})
OFFICE = {"IpAddress": {"aws:SourceIp": ["203.0.113.0/24", "198.51.100.22/32"]}}
for narrow_type, field, condition in (
    ("aws:opensearch/domain:Domain", "accessPolicies", OFFICE),
    ("aws:vpclattice/authPolicy:AuthPolicy", "policy", {"StringEquals": {"vpc-lattice-svcs:SourceVpc": "vpc-1"}}),
    ("aws:sns/topicPolicy:TopicPolicy", "policy", {"StringEquals": {"AWS:SourceOwner": "123456789012"}}),
):
    c.select("aws-policy-not-for-everybody", narrow_type)
    c.good({field: document(allow("es:*", Principal={"AWS": "*"}, Condition=condition))})
c.select("aws-policy-not-for-everybody", "aws:opensearch/domain:Domain")
c.good({"vpcOptions": {"subnetIds": [LATEST]}, "accessPolicies": EVERYTHING})
c.bad({"vpcOptions": {}, "accessPolicies": EVERYTHING}, "accessPolicies.Statement[0]", engine=False)
for condition in (
    {"IpAddress": {"aws:SourceIp": "0.0.0.0/0"}},
    {"IpAddress": {"aws:SourceIp": ["203.0.113.0/24", "0.0.0.0/1", "128.0.0.0/1"]}},
    {"IpAddress": {"aws:SourceIp": "everywhere"}},
    {"NotIpAddress": {"aws:SourceIp": "203.0.113.0/24"}},
    {"IpAddressIfExists": {"aws:SourceIp": "203.0.113.0/24"}},
):
    c.bad(
        {"accessPolicies": document(allow(Principal="*", Condition=condition))},
        "accessPolicies.Statement[0]",
        engine=False,
    )
c.select("aws-policy-not-for-everybody", "aws:apigateway/restApi:RestApi")
INVOKE = allow("execute-api:Invoke", "execute-api:/*", Principal="*")
NOT_ENDPOINT = {"StringNotEquals": {"aws:SourceVpce": "vpce-1"}}
OTHERS = {**INVOKE, "Effect": "Deny", "Condition": NOT_ENDPOINT}
for denial in (
    {},
    {"Principal": {"AWS": "*"}, "Action": "execute-api:*", "Resource": ["arn:a", "*"]},
    {"Condition": {"StringNotEquals": {"aws:SourceVpc": ["vpc-1", "vpc-2"], "aws:SourceVpce": "vpce-1"}}},
    {"Condition": {"NotIpAddress": {"aws:SourceIp": ["203.0.113.0/24"]}}},
    {"Condition": {"StringNotLikeIfExists": {"aws:SourceVpce": "vpce-1"}}},
):
    c.good({"policy": document(INVOKE, {**OTHERS, **denial})}, {"policy": document({**OTHERS, **denial}, INVOKE)})
for denial in (
    {"Effect": "Allow", "Principal": {"AWS": ONE}},
    {"Principal": {"AWS": ONE}},
    {"Action": "execute-api:ManageConnections"},
    {"Action": "execute-api:Invok?"},
    {"Action": None, "NotAction": "execute-api:Invoke"},
    {"Resource": "execute-api:/prod/*"},
    {"Resource": None, "NotResource": "execute-api:/*"},
    {"Condition": {}},
    {"Condition": {"IpAddress": {"aws:SourceIp": "203.0.113.0/24"}}},
    {"Condition": {"NotIpAddress": {"aws:SourceIp": "0.0.0.0/0"}}},
    {"Condition": {"StringEquals": {"aws:SourceVpce": "vpce-1"}}},
    {"Condition": {"StringNotLike": {"aws:SourceVpce": "vpce-*"}}},
    {"Condition": {"StringNotEquals": {"aws:SourceVpce": "${aws:SourceVpce}"}}},
    {"Condition": {"ForAnyValue:StringNotEquals": {"aws:SourceVpce": "vpce-1"}}},
    {"Condition": {"StringNotEquals": {"aws:UserAgent": "ours"}}},
    {"Condition": {**NOT_ENDPOINT, "Bool": {"aws:SecureTransport": "false"}}},
):
    c.bad({"policy": document(INVOKE, {**OTHERS, **denial})}, "policy.Statement[0]", engine=False)
c.select("aws-policy-not-for-everybody", "aws:ec2/vpcEndpoint:VpcEndpoint").good({"policy": EVERYTHING})
c.select("aws-policy-not-for-everybody", "aws:lambda/permission:Permission")
CALL = {"function": "f", "action": "lambda:InvokeFunction", "principal": "*"}
c.good({**CALL, "principal": "s3.amazonaws.com"}, {**CALL, "principalOrgId": "o-1"}, {**CALL, "sourceArn": UNKNOWN})
c.bad(CALL, "principal", engine=False)
c.select("aws-policy-not-for-everybody", "aws:ec2/amiLaunchPermission:AmiLaunchPermission")
c.good({"imageId": "ami-1", "accountId": "123456789012"}).bad(
    {"imageId": "ami-1", "group": "all"}, "group", engine=False
)

c.select("aws-no-star-permissions", "aws:ssoadmin/permissionSetInlinePolicy:PermissionSetInlinePolicy")
c.good({"inlinePolicy": document(allow("s3:*"))})
c.bad({"inlinePolicy": document(allow())}, "inlinePolicy.Statement[0]", engine=False)
c.select("aws-no-star-permissions", "aws:iam/rolePolicy:RolePolicy")
c.good(
    {"policy": document(allow("s3:*"))}, {"policy": document(allow("*", "arn:aws:s3:::b/*"))}, {"policy": UNKNOWN}, {}
)
c.good({"policy": document({"Effect": "Deny", "Action": "*", "Resource": "*"})})
c.bad({"role": "r", "policy": document(allow("s3:GetObject", "b"), allow())}, "policy.Statement[1]")
c.bad({"policy": document(allow(["IAM:*"]))}, "policy.Statement[0]", engine=False)
c.bad(
    {"policy": document({"Effect": "Allow", "NotAction": "s3:*", "Resource": "*"})}, "policy.Statement[0]", engine=False
)
for action, resource in (
    ("**", "*"),
    ("*", "**"),
    ("iam:?*", "*"),
    ("iam:*", "arn:aws:iam::*:*"),
    ("*", "arn:aws:iam::123456789012:*"),
    ("iam:*", "arn:aws:iam:*:*:*"),
    ("*", "arn:aws:iam::*"),
    ("iam:*", "arn:aws:iam"),
    ("iam:*", "arn:aws:iam::123456789012:*/*"),
    ("iam:*", [f"arn:aws:iam::123456789012:{kind}/*" for kind in ("role", "user", "group", "policy")]),
):
    c.bad({"policy": document(allow(action, resource))}, "policy.Statement[0]", engine=False)
c.good({"policy": document(allow("iam:*", "arn:aws:iam::123456789012:role/acme/*"))})
c.select("aws-no-star-permissions", "aws:iam/rolePolicyAttachment:RolePolicyAttachment")
c.good({"role": "r", "policyArn": "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"})
c.bad({"role": "r", "policyArn": "arn:aws:iam::aws:policy/AdministratorAccess"}, "policyArn")
c.select("aws-no-star-permissions", "aws:iam/rolePolicyAttachmentsExclusive:RolePolicyAttachmentsExclusive")
c.good({"roleName": "r", "policyArns": ["arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"]})
c.bad({"roleName": "r", "policyArns": ["arn:aws:iam::aws:policy/AdministratorAccess"]}, "policyArns", engine=False)
EC2 = document({**ROLE_TRUST, "Principal": {"Service": "ec2.amazonaws.com"}})
c.select("aws-no-star-permissions", ROLE).good(
    {"assumeRolePolicy": EC2, "inlinePolicies": [{"policy": document(allow("s3:*"))}]}
)
c.bad(
    {"assumeRolePolicy": EC2, "inlinePolicies": [{"name": "all", "policy": document(allow())}]},
    "inlinePolicies[0].policy.Statement[0]",
    engine=False,
)

c.select("aws-pass-role-limited", "aws:iam/policy:Policy")
c.good({"policy": document(allow("iam:PassRole", ONE))}, {"policy": document(allow("ec2:*"))}, {"policy": UNKNOWN})
c.bad({"policy": document(allow(["ec2:RunInstances", "iam:PassRole"]))}, "policy.Statement[0]")
c.bad({"policy": document(allow("iam:Pass*", "arn:aws:iam::123456789012:role/*"))}, "policy.Statement[0]", engine=False)

for every_role in ("arn:aws:iam:*:*:*", "arn:aws:iam::*", "arn:aws:iam::123456789012:r*"):
    c.bad({"policy": document(allow("iam:PassRole", every_role))}, "policy.Statement[0]", engine=False)
for action in ("iam:*Role", "iam:P*Role", "iam:?assRole", "*:PassRole"):
    c.bad({"policy": document(allow(action))}, "policy.Statement[0]", engine=False)
ROLES = "arn:aws:iam::*:role/*"
c.bad(
    {"policy": document({"Effect": "Allow", "NotAction": "s3:*", "Resource": ROLES})},
    "policy.Statement[0]",
    engine=False,
)
c.good({"policy": document({"Effect": "Allow", "NotAction": "iam:*", "Resource": ROLES})})
c.good({"policy": document(allow("iam:*Role", "arn:aws:iam::*:role/acme-*"))})

c.select("aws-no-escalation", "aws:iam/policy:Policy")
BOUNDED = {"StringEquals": {"iam:PermissionsBoundary": "arn:aws:iam::123456789012:policy/boundary"}}
c.good(
    {"policy": document(allow("iam:PutRolePolicy", ONE))},
    {"policy": document(allow("iam:PutRolePolicy", "arn:aws:iam::123456789012:role/acme-*"))},
    {"policy": document(allow("iam:PutRolePolicy", "arn:aws:iam::123456789012:role/???????"))},
    {"policy": document(allow(["iam:Get*", "iam:List*", "iam:CreateRole", "iam:TagRole"]))},
    {"policy": document(allow("iam:AttachRolePolicy", Condition=BOUNDED))},
    {
        "policy": document(
            allow("iam:AttachRolePolicy", Condition={"ArnLike": {"iam:PolicyARN": "arn:aws:iam::*:p/a*"}})
        )
    },
    {"policy": document(allow("iam:CreateAccessKey", "arn:aws:iam::*:user/${aws:username}"))},
    {"policy": document({"Effect": "Deny", "Action": "iam:PutRolePolicy", "Resource": "*"})},
    {"policy": UNKNOWN},
)
c.bad(
    {"policy": document(allow("s3:GetObject", "b"), allow(["iam:GetRole", "iam:PutRolePolicy"]))}, "policy.Statement[1]"
)
for escalating in (
    allow("iam:AttachRolePolicy", "arn:aws:iam::123456789012:role/*"),
    allow("iam:Create*Version", "arn:aws:iam::*:policy/*"),
    allow("iam:PutRolePolicy", "arn:aws:iam::123456789012:*/*"),
    allow("iam:PutRolePolicy", "arn:aws:iam::123456789012:r*"),
    allow("iam:PutRolePolicy", "arn:aws-cn:iam::123456789012:role/*?"),
    allow("iam:PutRolePolicy", "arn:aws-eusc:iam::123456789012:role/*?"),
    allow("iam:PutRolePolicy", "arn:aws:iam::*"),
    allow("iam:PutRolePolicy", "arn:*"),
    allow("iam:Update*"),
    allow("*:AddUserToGroup"),
    allow("iam:CreateAccessKey", Condition={"StringLike": {"iam:PolicyARN": "*"}}),
    allow("iam:PutUserPolicy", Condition={"StringNotEquals": {"iam:PermissionsBoundary": "arn:aws:iam::1:policy/b"}}),
    {"Effect": "Allow", "NotAction": "iam:PassRole", "Resource": "arn:aws:iam::*:role/*"},
):
    c.bad({"policy": document(escalating)}, "policy.Statement[0]", engine=False)

c.select("aws-trust-named", ROLE)
SUB = {"StringLike": {f"{GITHUB}:sub": "repo:acme/train:*"}}
c.good(
    {"assumeRolePolicy": EC2},
    {"assumeRolePolicy": UNKNOWN},
    {"assumeRolePolicy": document({**FEDERATED, "Condition": SUB})},
)
c.good(
    {"assumeRolePolicy": document({**FEDERATED, "Condition": {"StringEquals": {f"{GITHUB}:repository_id": "4711"}}})}
)
c.good(
    {
        "assumeRolePolicy": document(
            {**ROLE_TRUST, "Principal": "*", "Condition": {"StringEquals": {"aws:PrincipalOrgID": "o-1"}}}
        )
    }
)
TRUST = "assumeRolePolicy.Statement[0]"
c.bad({"assumeRolePolicy": document({**ROLE_TRUST, "Principal": {"AWS": "*"}})}, TRUST)
OTHER = "arn:aws:iam::123456789012:oidc-provider/gitlab.com"
ELSEWHERE = {**ROLE_TRUST, "Action": "sts:AssumeRoleWithWebIdentity", "Principal": {"Federated": OTHER}}
c.good({"assumeRolePolicy": document({**ELSEWHERE, "Condition": {"StringEquals": {"gitlab.com:sub": "acme"}}})})
c.bad({"assumeRolePolicy": document(ELSEWHERE)}, TRUST, engine=False)
EKS = "oidc.eks.us-east-2.amazonaws.com/id/ABC"
CIRCLE = "oidc.circleci.com/org/1a2b"
BITBUCKET = "api.bitbucket.org/2.0/workspaces/acme/pipelines-config/identity/oidc"
SENTINEL = "sts.windows.net/33e01921-4d64-4f8c-a055-5bdaffd5e33d/"
TENANT = "sts.windows.net/5e6f/"


def federated(issuer: str, condition: dict[str, object]) -> dict[str, str]:
    name = issuer if issuer.startswith("cognito") else f"arn:aws:iam::123456789012:oidc-provider/{issuer}"
    return {"assumeRolePolicy": document({**ELSEWHERE, "Principal": {"Federated": name}, "Condition": condition})}


for issuer, condition in (
    ("gitlab.com", {"StringEquals": {"gitlab.com:aud": "https://gitlab.com"}}),
    ("gitlab.com", {"StringLike": {"gitlab.com:sub": "*"}}),
    ("gitlab.com", {"StringLike": {"gitlab.com:sub": "project_path:*:ref_type:branch:ref:main"}}),
    ("gitlab.com", {"StringLike": {"gitlab.com:sub": ["project_path:acme/*", "project_path:acme*"]}}),
    ("gitlab.com", {"StringNotEquals": {"gitlab.com:sub": "project_path:acme/web:ref_type:branch:ref:main"}}),
    ("gitlab.com", {"StringEqualsIfExists": {"gitlab.com:sub": "acme"}}),
    ("gitlab.com", {"IpAddress": {"aws:SourceIp": "0.0.0.0/0"}}),
    ("app.terraform.io", {"StringEquals": {"app.terraform.io:aud": "aws.workload.identity"}}),
    ("api.pulumi.com/oidc", {"StringLike": {"api.pulumi.com/oidc:sub": "pulumi:deploy:org:*"}}),
    (EKS, {"StringEquals": {f"{EKS}:aud": "sts.amazonaws.com"}}),
    (EKS, {"StringLike": {f"{EKS}:sub": "system:serviceaccount:*"}}),
    ("cognito-identity.amazonaws.com", {"StringLike": {"cognito-identity.amazonaws.com:amr": "authenticated"}}),
    ("scalr.io", {"StringEquals": {"scalr.io:aud": "aws.scalr.run-workload"}}),
    (SENTINEL, {"StringEquals": {f"{SENTINEL}:aud": "api://1462b192"}}),
    (CIRCLE, {"StringLike": {f"{CIRCLE}:aud": "*"}}),
    (CIRCLE, {"StringEqualsIfExists": {f"{CIRCLE}:aud": "1a2b"}}),
):
    c.bad(federated(issuer, condition), TRUST, engine=False)
for issuer, condition in (
    ("gitlab.com", {"StringLike": {"gitlab.com:sub": "project_path:acme/*:ref_type:branch:ref:main"}}),
    ("app.terraform.io", {"StringLike": {"app.terraform.io:sub": "organization:acme:project:*"}}),
    ("api.pulumi.com/oidc", {"StringLike": {"api.pulumi.com/oidc:sub": "pulumi:deploy:org:acme:*"}}),
    (CIRCLE, {"StringLike": {f"{CIRCLE}:sub": "org/1a2b/project/3c4d/user/*"}}),
    (CIRCLE, {"StringEquals": {f"{CIRCLE}:aud": "1a2b"}}),
    (BITBUCKET, {"StringEquals": {f"{BITBUCKET}:aud": "ari:cloud:bitbucket::workspace/6c1"}}),
    (TENANT, {"StringEquals": {f"{TENANT}:aud": "api://trainer"}}),
    (EKS, {"StringEquals": {f"{EKS}:sub": "system:serviceaccount:ml:trainer", f"{EKS}:aud": "sts.amazonaws.com"}}),
    ("cognito-identity.amazonaws.com", {"StringEquals": {"cognito-identity.amazonaws.com:aud": "eu-west-1:1a2b"}}),
):
    c.good(federated(issuer, condition))
for condition in (
    {"StringNotEquals": {"aws:PrincipalOrgID": "o-1"}},
    {"StringEqualsIfExists": {"aws:PrincipalOrgID": "o-1"}},
    {"StringLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/ci"}},
):
    trusting = {**ROLE_TRUST, "Principal": {"AWS": "*"}, "Condition": condition}
    c.bad({"assumeRolePolicy": document(trusting)}, TRUST, engine=False)
for condition in (
    {},
    {"StringEquals": {f"{GITHUB}:aud": "sts.amazonaws.com"}},
    {"StringLike": {f"{GITHUB}:sub": "repo:acme/*"}},
    {"StringLike": {f"{GITHUB}:sub": ["repo:acme/train:*", "repo:*"]}},
    {"ForAllValues:StringLike": {f"{GITHUB}:sub": "repo:acme/train:*"}},
    {"StringEqualsIfExists": {f"{GITHUB}:repository_id": "4711"}},
    {"StringNotEquals": {f"{GITHUB}:repository": "acme/train"}},
):
    c.bad({"assumeRolePolicy": document({**FEDERATED, "Condition": condition})}, TRUST, engine=False)

c.select("aws-no-access-keys", "aws:iam/accessKey:AccessKey").bad({"user": "u"}, "")
c.select("aws-no-access-keys", "aws:iam/user:User").good({})

CASES = c.listed
