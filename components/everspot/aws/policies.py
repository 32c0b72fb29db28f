"""IAM and resource policies as pure functions. The components attach them, and tests evaluate them.

Each statement carries a `Sid` that says what it is for. The comment beside it names the call that needs it, and the
source if the need is not obvious from the call's name. The key prefixes are those of the store's layout.
"""

from collections.abc import Sequence
from typing import Any

from everspot_clouds.aws.rules import CLUSTER_TAG

Document = dict[str, Any]
Statement = dict[str, Any]

JOB_READS = ("jobs/", "datasets/", "wheels/")
"""Prefixes of the data bucket that jobs read; each of them only what it names."""

JOB_DOCUMENTS = ("heads/", "events/")
"""Prefixes of the control bucket that jobs read and write; each of them only its own documents."""

AGENT_WRITES = ("records/", "instances/", "heads/", "events/")
"""Prefixes of the control bucket that agents and trainers write."""

SCHEDULER_WRITES = (
    *("jobs/", "records/", "assignments/", "events/", "ledger/", "schedulers/", "faults/", "archive/", "launching/"),
    *("waiting.json", "usage.json", "pools.json"),
)
"""Prefixes of the control bucket that schedulers write."""

SCHEDULER_DELETES = (
    *("drills/", "jobs/", "cancels/", "events/"),
    *("records/", "assignments/", "instances/", "launching/"),
)
"""Prefixes of the control bucket from which schedulers delete documents."""

NOTIFIER_KEEPS = ("told/",)
"""Prefixes of the control bucket where a scheduler notes which notifications it has sent."""


def trust_ec2() -> Document:
    """Return the trust policy of an instance's role: only EC2 may assume it."""
    return document(
        [
            {
                "Sid": "InstancesTakeTheirRole",
                "Effect": "Allow",
                "Principal": {"Service": "ec2.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ]
    )


_ASSUME_TAGGED = ["sts:AssumeRole", "sts:TagSession"]
"""What it takes to assume a role by a session with tags."""


def trust_role(role_arn: str, *, tagged: bool = False) -> Document:
    """Return the trust policy of the jobs' role: only sessions of the agents' role may assume it. `tagged`: see
    `assume_policy`."""
    return document(
        [
            {
                "Sid": "AgentsTakeItForAJob",
                "Effect": "Allow",
                "Principal": {"AWS": role_arn},
                "Action": _ASSUME_TAGGED if tagged else "sts:AssumeRole",
            }
        ]
    )


def trust_pods(eks_cluster: str, namespace: str, account: str, *, tagged: bool = True) -> Document:
    """Return the trust policy of a pod's role: EKS may assume it for the pods of one service account, with the tags
    that say which these are (Amazon EKS User Guide, "Create IAM role with trust policy required by EKS Pod
    Identity"). `tagged` False: the association disables these tags; where there are some, they have to be these."""
    tags = {"eks-cluster-name": eks_cluster, "kubernetes-namespace": namespace, "kubernetes-service-account": account}
    return document(
        [
            {
                "Sid": "PodsOfTheAccountTakeIt",
                "Effect": "Allow",
                "Principal": {"Service": "pods.eks.amazonaws.com"},
                "Action": _ASSUME_TAGGED,
                "Condition": {
                    "StringEquals" if tagged else "StringEqualsIfExists": {
                        f"aws:RequestTag/{key}": value for key, value in tags.items()
                    }
                },
            }
        ]
    )


def assume_policy(role_arn: str, *, tagged: bool = False) -> Document:
    """Return the permission of agents to become the jobs' role. `tagged`: their sessions have tags, which go over to
    the next role (Amazon EKS User Guide, "Grant Pods access to AWS resources based on tags")."""
    return document([allow("BecomeAJob", _ASSUME_TAGGED if tagged else ["sts:AssumeRole"], [role_arn])])


def job_policy(
    *,
    control_arn: str,
    data_arn: str,
    key_arn: str | None = None,
    former_key_arns: Sequence[str] = (),
    read_arns: Sequence[str] = (),
) -> Document:
    """Return what all jobs of the cluster together may do. The agent assumes the role with a session policy, which
    limits a job to its own keys (`everspot_clouds.aws.job_credentials`). `read_arns`: further buckets;
    `former_key_arns`: earlier keys of the cluster's buckets."""
    listed = {"StringLike": {"s3:prefix": [f"{prefix}*" for prefix in ("jobs/", "datasets/")]}}
    statements = [
        # The fence and the published checkpoints, by conditional writes; the trainer's own events.
        allow("KeepOwnDocuments", ["s3:GetObject", "s3:PutObject"], _under(control_arn, JOB_DOCUMENTS)),
        allow("ListOwnEvents", ["s3:ListBucket"], [control_arn], StringLike={"s3:prefix": ["events/*"]}),
        allow("ReadWhatJobsNeed", ["s3:GetObject"], _under(data_arn, JOB_READS)),
        allow(
            "KeepCheckpointsAndMetrics",
            ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
            _under(data_arn, ("jobs/",)),
        ),
        # A plain StringLike: IfExists would let a listing without a prefix show the names of all keys.
        allow("ListOwnKeys", ["s3:ListBucket"], [data_arn], **listed),
    ]
    if read_arns:
        reads = [resource for arn in read_arns for resource in (arn, f"{arn}/*")]
        statements.append(allow("ReadFurtherBuckets", ["s3:GetObject", "s3:ListBucket"], reads))
    return document([*statements, *key(key_arn, former_key_arns)])


def agent_policy(
    *,
    control_arn: str,
    data_arn: str,
    key_arn: str | None = None,
    former_key_arns: Sequence[str] = (),
    read_arns: Sequence[str] = (),
    secret_arns: Sequence[str] = (),
    repository_arns: Sequence[str] = (),
    session_manager: bool = False,
) -> Document:
    """Return what the agent and the trainer of an instance may do. `read_arns`: further buckets that jobs may read;
    `secret_arns`: secrets and parameters; `repository_arns`: of ECR, with images of jobs; `former_key_arns`: earlier
    keys of the cluster's buckets."""
    statements = [
        _read_control(control_arn),
        listing("ListControl", control_arn),
        allow(
            # Conditional writes: If-None-Match needs PutObject, If-Match needs GetObject too
            # (Amazon S3 User Guide, "How to prevent object overwrites with conditional writes").
            "WriteControl",
            ["s3:PutObject"],
            _under(control_arn, AGENT_WRITES),
        ),
        allow("ReadWhatJobsNeed", ["s3:GetObject"], _under(data_arn, ("code/", "datasets/", "wheels/"))),
        allow(
            # Checkpoints, logs and metrics. Multipart uploads need PutObject for every part, and AbortMultipartUpload
            # to clean up one that failed (Amazon S3 User Guide, "Multipart upload API and permissions").
            "KeepCheckpointsAndLogs",
            ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
            _under(data_arn, ("jobs/",)),
        ),
        # The agents' own logs, which the operator of the cluster reads.
        allow("KeepOwnLogs", ["s3:PutObject"], _under(data_arn, ("agents/",))),
        listing("ListData", data_arn, ("jobs/", "code/", "datasets/")),
    ]
    if read_arns:
        reads = [resource for arn in read_arns for resource in (arn, f"{arn}/*")]
        statements.append(allow("ReadFurtherBuckets", ["s3:GetObject", "s3:ListBucket"], reads))
    statements += [*_secrets(secret_arns), *_images(repository_arns), *key(key_arn, former_key_arns)]
    return document([*statements, *(_session_manager() if session_manager else [])])


def scheduler_policy(
    *,
    cluster: str,
    control_arn: str,
    queue_arn: str | None = None,
    key_arn: str | None = None,
    former_key_arns: Sequence[str] = (),
    topic_arn: str | None = None,
    webhook_secret_arn: str | None = None,
    session_manager: bool = False,
) -> Document:
    """Return what the scheduler may do. It has no permission on the data bucket. `queue_arn`: of EC2's notices, if
    there is one; `topic_arn`, `webhook_secret_arn`: where it sends notifications; `former_key_arns`: earlier keys of
    the cluster's buckets."""
    statements = [
        _read_control(control_arn),
        listing("ListControl", control_arn),
        allow("WriteControl", ["s3:PutObject"], _under(control_arn, SCHEDULER_WRITES)),
        # A drill is deleted after it was carried out, so that it happens once. The documents of finished jobs
        # and of ended instances leave the tables that every tick lists, once they have been written elsewhere.
        allow("ForgetDrillsAndWhatIsOver", ["s3:DeleteObject"], _under(control_arn, SCHEDULER_DELETES)),
        allow(
            # Describe calls of EC2 take no resource (Service Authorization Reference, "Actions defined by Amazon EC2").
            # Scores name zones by ids, whose names DescribeAvailabilityZones tells.
            "SeeInstancesPricesAndScores",
            [
                *("ec2:DescribeInstances", "ec2:DescribeSpotPriceHistory"),
                *("ec2:GetSpotPlacementScores", "ec2:DescribeAvailabilityZones"),
            ],
            ["*"],
        ),
        _tag_volumes(cluster, queue_arn or control_arn),
    ]
    if queue_arn is not None:
        # The batch form of a call is allowed by the action of its single form (Amazon SQS Developer Guide, "Amazon SQS
        # API permissions").
        statements.append(allow("HearInterruptions", ["sqs:ReceiveMessage", "sqs:DeleteMessage"], [queue_arn]))
    if topic_arn is not None or webhook_secret_arn is not None:
        remembers = ["s3:PutObject", "s3:DeleteObject"]
        statements.append(allow("RememberWhatWasTold", remembers, _under(control_arn, NOTIFIER_KEEPS)))
    if topic_arn is not None:
        statements.append(allow("TellPeople", ["sns:Publish"], [topic_arn]))
    statements += _secrets([webhook_secret_arn] if webhook_secret_arn is not None else [])
    keys = key(key_arn, former_key_arns)
    return document([*statements, *keys, *(_session_manager() if session_manager else [])])


def monitoring_policy(namespace: str) -> Document:
    """Return what the scheduler may do in a cluster with monitoring. The only restriction of PutMetricData is its
    namespace (Amazon CloudWatch User Guide, "Using condition keys to limit access to CloudWatch namespaces")."""
    own = {"cloudwatch:namespace": namespace}
    return document([allow("PutMetrics", ["cloudwatch:PutMetricData"], ["*"], StringEquals=own)])


def tls_only_bucket(bucket_arn: str) -> Document:
    """Return the policy of a bucket that answers only over TLS."""
    return document([_deny_plain_http("s3:*", [bucket_arn, f"{bucket_arn}/*"])])


def s3_endpoint(bucket_arns: Sequence[str]) -> Document:
    """Return the policy of S3's gateway endpoint. It lets requests to these buckets and their objects pass, for any
    principal.

    Everything else, other accounts' buckets first of all, cannot be reached from the network (Amazon VPC User Guide,
    "Gateway endpoints for Amazon S3").
    """
    resources = [resource for arn in bucket_arns for resource in (arn, f"{arn}/*")]
    return document(
        [{"Sid": "TheseBuckets", "Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": resources}]
    )


def interruption_queue(queue_arn: str, rule_arns: Sequence[str]) -> Document:
    """Return the policy of a queue to which only these EventBridge rules may send, and only over TLS."""
    return document(
        [
            {
                "Sid": "TheRulesSend",
                "Effect": "Allow",
                "Principal": {"Service": "events.amazonaws.com"},
                "Action": "sqs:SendMessage",
                "Resource": queue_arn,
                "Condition": {"ArnEquals": {"aws:SourceArn": list(rule_arns)}},
            },
            _deny_plain_http("sqs:*", [queue_arn]),
        ]
    )


def _tag_volumes(cluster: str, cluster_arn: str) -> Statement:
    """Return the permission of the scheduler to tag the volumes of Spot instances, which no launch template does in a
    fleet of type maintain. It may set only the cluster's own tag, and may not tag another cluster's volumes.
    `cluster_arn`: of something of the cluster. A bucket's ARN has neither region nor account, and those of the role's
    own account are all that it reaches."""
    _, partition, _, region, account, *_ = f"{cluster_arn}:::::".split(":")
    volumes = f"arn:{partition or 'aws'}:ec2:{region or '*'}:{account or '*'}:volume/*"
    statement = allow("TagVolumes", ["ec2:CreateTags"], [volumes])
    statement["Condition"] = {
        "StringEquals": {f"aws:RequestTag/{CLUSTER_TAG}": cluster},
        "StringEqualsIfExists": {f"aws:ResourceTag/{CLUSTER_TAG}": cluster},
    }
    return statement


def document(statements: Sequence[Statement]) -> Document:
    """Return a policy of these statements."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(sid: str, actions: list[str], resources: list[str], **conditions: dict[str, Any]) -> Statement:
    """Return a statement that allows actions on resources. `conditions`: keys and values by the condition's
    operator."""
    condition = {"Condition": conditions} if conditions else {}
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources, **condition}


def _secrets(arns: Sequence[str]) -> list[Statement]:
    """Return the permission to read the values that jobs name in their `secrets`. A value under a customer key needs
    kms:Decrypt for the role in that key's own policy (AWS Secrets Manager User Guide, "Secret encryption and
    decryption"; the same for SSM's SecureString)."""
    actions = (("secretsmanager", "secretsmanager:GetSecretValue"), ("ssm", "ssm:GetParameter"))
    grants = [(service, action, [arn for arn in arns if f":{service}:" in arn]) for service, action in actions]
    return [allow(f"ReadSecrets{service.capitalize()}", [action], own) for service, action, own in grants if own]


PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
"""What a pull from ECR needs on the repository (Amazon ECR User Guide, "IAM permissions for pulling an image")."""


def _images(arns: Sequence[str]) -> list[Statement]:
    """Return the permission to pull images. A token is for the whole registry, and opens only what the other statement
    names (Service Authorization Reference, "Actions defined by Amazon Elastic Container Registry")."""
    if not arns:
        return []
    token = allow("LogInToRegistry", ["ecr:GetAuthorizationToken"], ["*"])
    return [token, allow("PullImages", list(PULL), list(arns))]


def _under(bucket_arn: str, prefixes: Sequence[str]) -> list[str]:
    return [f"{bucket_arn}/{prefix}*" for prefix in prefixes]


def _read_control(control_arn: str) -> Statement:
    return allow("ReadControl", ["s3:GetObject"], [f"{control_arn}/*"])


def listing(sid: str, bucket_arn: str, prefixes: Sequence[str] = ()) -> Statement:
    """Return the permission to list, without which S3 answers 403 instead of 404 for a missing key.

    S3 answers 404 for a missing object only to callers that may list the bucket (Amazon S3 API Reference, "GetObject").
    A GetObject carries no `s3:prefix`, hence IfExists: a plain StringLike would turn every 404 into a 403.
    """
    statement = allow(sid, ["s3:ListBucket"], [bucket_arn])
    if prefixes:
        statement["Condition"] = {"StringLikeIfExists": {"s3:prefix": [f"{prefix}*" for prefix in prefixes]}}
    return statement


def key(key_arn: str | None, former_key_arns: Sequence[str] = ()) -> list[Statement]:
    """Return the permissions for SSE-KMS with a customer key: GenerateDataKey to write, Decrypt to read and to finish a
    multipart upload (Amazon S3 User Guide, "Using server-side encryption with AWS KMS keys"). An object stays encrypted
    under the key with which it was written, so that earlier keys are needed to read."""
    use = [allow("UseTheKey", ["kms:GenerateDataKey", "kms:Decrypt"], [key_arn])] if key_arn else []
    decrypt = [allow("ReadUnderFormerKeys", ["kms:Decrypt"], list(former_key_arns))] if former_key_arns else []
    return [*use, *decrypt]


def _session_manager() -> list[Statement]:
    """Return the calls of the SSM agent on the instance, for a shell without SSH and without an open port (AWS Systems
    Manager User Guide, "Create an IAM role with minimal Session Manager permissions")."""
    channels = ("CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel")
    return [allow("SessionManager", ["ssm:UpdateInstanceInformation", *(f"ssmmessages:{c}" for c in channels)], ["*"])]


def _deny_plain_http(action: str, resources: list[str]) -> Statement:
    return {
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": action,
        "Resource": resources,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
