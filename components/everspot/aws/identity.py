"""The roles of a cluster: of agents, of the scheduler, and of jobs, each with only the permissions that it needs."""

import json
from collections.abc import Callable
from typing import Any, NotRequired, TypedDict

import pulumi
from everspot_core.jobs.records import Role
from everspot_core.validation.problems import Problems
from pulumi_aws import iam

from everspot import common
from everspot.aws import arns, policies, tagging
from everspot.aws.notifications import AwsNotificationsArgs
from everspot.parts import outputs


class AwsPodIdentityArgs(TypedDict):
    """The pods that have the roles, instead of instances."""

    eks_cluster: str
    """Name of the EKS cluster."""
    namespace: str
    """Namespace of the pods."""
    agent_account: str
    """Service account of the agents' pods."""
    scheduler_account: str
    """Service account of the scheduler's pod."""


class AwsIdentityArgs(TypedDict):
    """Inputs of `AwsIdentity`."""

    cluster: str
    """Name of the cluster, for tags."""
    tags: dict[str, str]
    """Tags of roles and profiles; Project, Team and Environment are mandatory."""
    control_arn: pulumi.Input[str]
    """ARN of the control bucket."""
    data_arn: pulumi.Input[str]
    """ARN of the data bucket."""
    queue_arn: NotRequired[pulumi.Input[str]]
    """ARN of the queue of interruption events. Default: no queue."""
    kms_key_arn: NotRequired[pulumi.Input[str]]
    """ARN of the customer-managed KMS key of the buckets, if they have one."""
    former_kms_key_arns: NotRequired[list[str]]
    """ARNs of earlier keys of the buckets, with which the roles may decrypt. Default: none."""
    read_bucket_arns: NotRequired[list[pulumi.Input[str]]]
    """ARNs of further buckets that agents may read. Default: none."""
    permissions_boundary_arn: NotRequired[pulumi.Input[str]]
    """ARN of the permissions boundary of both roles, if the account demands one."""
    secret_arns: NotRequired[list[str]]
    """ARNs of the secrets and parameters that jobs may read; an ARN may end in `*` after a part of the name. Default:
    none."""
    image_repositories: NotRequired[list[str]]
    """Repositories of ECR from which agents may fetch the images of jobs. Default: none."""
    notifications: NotRequired[AwsNotificationsArgs]
    """Where the scheduler sends notifications about jobs: its role may send there. Default: nowhere."""
    session_manager: NotRequired[bool]
    """Whether people may open a shell on instances through Systems Manager. Default: false."""
    job_role: NotRequired[bool]
    """Whether there is a role for jobs. Without one, jobs have the agents' permissions. Default: true."""
    pod_identity: NotRequired[AwsPodIdentityArgs]
    """The pods of an EKS cluster that have the roles. Default: instances have them, by profiles."""


class AwsIdentity(pulumi.ComponentResource):
    """The roles and instance profiles of agents and scheduler, and the role that agents take for a job. A cluster has
    no other credentials."""

    agent_role_arn: pulumi.Output[str]
    """ARN of the agents' role."""
    job_role_arn: pulumi.Output[str]
    """ARN of the jobs' role: what a policy elsewhere has to name that lets jobs in, such as that of a bucket in another
    account. A job has a session of it that is limited to the job's own keys. Empty without `job_role`."""
    scheduler_role_arn: pulumi.Output[str]
    """ARN of the scheduler's role."""
    agent_profile_arn: pulumi.Output[str]
    """ARN of the agents' instance profile, or of their role where pods have it; known once the role has its
    permissions."""
    scheduler_profile_arn: pulumi.Output[str]
    """ARN of the scheduler's instance profile, or of its role where a pod has it; known once the role has its
    permissions."""

    def __init__(self, name: str, args: AwsIdentityArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("AwsIdentity"), name, {}, opts)
        problems = Problems()
        tagging.check_common(problems, args["cluster"], args["tags"])
        common.check_name(problems, name, f"-{Role.SCHEDULER.value}", 64, "roles")
        arns.check_arn(problems, args, "kms_key_arn", "kms", "key/")
        arns.check_arns(problems, "formerKmsKeyArns", args.get("former_kms_key_arns", []), "kms", "key/")
        arns.check_arn(problems, args, "permissions_boundary_arn", "iam", "policy/")
        arns.check_arns(problems, "readBucketArns", args.get("read_bucket_arns", []), "s3", "")
        arns.check_secrets(problems, args.get("secret_arns", []))
        arns.check_repositories(problems, args.get("image_repositories", []))
        common.raise_bad(problems, f"AwsIdentity {name}")
        self._name, self._args = name, args
        repositories = [arn for name in args.get("image_repositories", []) if (arn := arns.repository_arn(name))]
        key = pulumi.Output.from_input(args.get("kms_key_arn"))
        former_keys = args.get("former_kms_key_arns", [])
        shell = args.get("session_manager", False)
        more = args.get("read_bucket_arns", [])
        facts = pulumi.Output.all(
            control=args["control_arn"], data=args["data_arn"], key=key, more=pulumi.Output.all(*more)
        )
        agent, agent_ready = self._role(
            Role.AGENT,
            facts,
            lambda f: policies.agent_policy(
                control_arn=f["control"],
                data_arn=f["data"],
                key_arn=f["key"],
                former_key_arns=former_keys,
                read_arns=f["more"],
                secret_arns=args.get("secret_arns", []),
                repository_arns=repositories,
                session_manager=shell,
            ),
        )
        self.agent_role_arn = agent.arn
        self.job_role_arn, self.agent_profile_arn = pulumi.Output.from_input(""), agent_ready
        if args.get("job_role", True):
            self.job_role_arn, takes_it = self._job_role(agent, facts)
            # An agent that cannot assume the jobs' role yet would return its first jobs.
            self.agent_profile_arn = pulumi.Output.all(agent_ready, takes_it.id).apply(lambda pair: str(pair[0]))
        facts = pulumi.Output.all(control=args["control_arn"], queue=args.get("queue_arn"), key=key)
        scheduler, self.scheduler_profile_arn = self._role(
            Role.SCHEDULER,
            facts,
            lambda f: policies.scheduler_policy(
                cluster=args["cluster"],
                control_arn=f["control"],
                queue_arn=f["queue"],
                key_arn=f["key"],
                former_key_arns=former_keys,
                topic_arn=args.get("notifications", {}).get("topic_arn"),
                webhook_secret_arn=args.get("notifications", {}).get("webhook_secret_arn"),
                session_manager=shell,
            ),
        )
        self.scheduler_role_arn = scheduler.arn
        self.register_outputs(outputs(self))

    def _job_role(
        self, agent: iam.Role, facts: pulumi.Output[dict[str, Any]]
    ) -> tuple[pulumi.Output[str], iam.RolePolicy]:
        """Return the ARN of the jobs' role, and the agents' permission to take it."""
        child = pulumi.ResourceOptions(parent=self)
        name, tagged = f"{self._name}-job", "pod_identity" in self._args
        role = iam.Role(
            name,
            assume_role_policy=agent.arn.apply(lambda arn: json.dumps(policies.trust_role(arn, tagged=tagged))),
            description=f"Everspot jobs of cluster {self._args['cluster']}",
            permissions_boundary=self._args.get("permissions_boundary_arn"),
            tags=tagging.cluster_tags(self._args["cluster"], self._args["tags"]),
            opts=child,
        )
        permissions = iam.RolePolicy(
            f"{name}-permissions",
            role=role.name,
            policy=facts.apply(
                lambda f: json.dumps(
                    policies.job_policy(
                        control_arn=f["control"],
                        data_arn=f["data"],
                        key_arn=f["key"],
                        former_key_arns=self._args.get("former_kms_key_arns", []),
                        read_arns=f["more"],
                    )
                )
            ),
            opts=child,
        )
        takes_it = iam.RolePolicy(
            f"{self._name}-{Role.AGENT.value}-takes-job",
            role=agent.name,
            policy=role.arn.apply(lambda arn: json.dumps(policies.assume_policy(arn, tagged=tagged))),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[permissions]),
        )
        return role.arn, takes_it

    def _role(
        self,
        role: Role,
        facts: pulumi.Output[dict[str, Any]],
        document: Callable[[dict[str, Any]], policies.Document],
    ) -> tuple[iam.Role, pulumi.Output[str]]:
        """Return a role, and the ARN of its instance profile, which is known once the role has its permissions."""
        child = pulumi.ResourceOptions(parent=self)
        name = f"{self._name}-{role.value}"
        tags = tagging.cluster_tags(self._args["cluster"], self._args["tags"])
        iam_role = iam.Role(
            name,
            assume_role_policy=json.dumps(self._trust(role)),
            description=f"Everspot {role.value} of cluster {self._args['cluster']}",
            permissions_boundary=self._args.get("permissions_boundary_arn"),
            tags=tags,
            opts=child,
        )
        permissions = iam.RolePolicy(
            f"{name}-permissions",
            role=iam_role.name,
            policy=facts.apply(lambda found: json.dumps(document(found))),
            opts=child,
        )
        if "pod_identity" in self._args:
            return iam_role, pulumi.Output.all(iam_role.arn, permissions.id).apply(lambda pair: str(pair[0]))
        profile = iam.InstanceProfile(f"{name}-profile", role=iam_role.name, tags=tags, opts=child)
        # An instance that boots before its role may do anything would only log refusals.
        ready = pulumi.Output.all(profile.arn, permissions.id).apply(lambda pair: str(pair[0]))
        return iam_role, ready

    def _trust(self, role: Role) -> policies.Document:
        """Return who has a role: instances, or the pods of its service account."""
        pods = self._args.get("pod_identity")
        if pods is None:
            return policies.trust_ec2()
        account = pods["agent_account"] if role is Role.AGENT else pods["scheduler_account"]
        return policies.trust_pods(pods["eks_cluster"], pods["namespace"], account, tagged=role is not Role.AGENT)
