"""The service accounts of the instances: one for agents and one for the scheduler, each with only the permissions that
it needs."""

import functools
import re
from collections.abc import Sequence
from typing import NotRequired, TypedDict

import pulumi
from everspot_clouds.gcp.job_credentials import MOST_READ_BUCKETS
from everspot_clouds.gcp.names import BUCKET, account_id, agents
from everspot_clouds.gcp.network import resource_problem
from everspot_core.jobs.records import Role
from everspot_core.validation.problems import Problems, shown
from pulumi_gcp import serviceaccount

from everspot import common
from everspot.gcp import policies, preview_queries, tagging
from everspot.gcp.granting import Granting
from everspot.gcp.notifications import SECRET_FORM, GcpNotificationsArgs, check_notifications
from everspot.parts import outputs

REPOSITORY = re.compile(
    r"(?P<location>[a-z][a-z0-9-]{0,62})-docker\.pkg\.dev"
    r"/(?P<project>[a-z][a-z0-9-]{4,28}[a-z0-9])/(?P<name>[a-z][a-z0-9-]{0,61}[a-z0-9])"
)
"""The address of a repository of images (Artifact Registry documentation, "Repository and image names")."""


class GcpIdentityArgs(TypedDict):
    """Inputs of `GcpIdentity`."""

    cluster: str
    """Name of the cluster."""
    tags: dict[str, str]
    """Tags of the cluster; Project, Team and Environment are mandatory. Service accounts have no labels themselves."""
    control_bucket: pulumi.Input[str]
    """Name of the control bucket."""
    data_bucket: pulumi.Input[str]
    """Name of the data bucket."""
    subscription: pulumi.Input[str]
    """Subscription of interruption events, projects/…/subscriptions/…."""
    read_buckets: NotRequired[list[str]]
    """Names of further buckets that jobs may read. Default: none."""
    job_role: NotRequired[bool]
    """Whether there is a role for jobs. Without one, jobs have the agents' permissions. Default: true."""
    secrets: NotRequired[list[str]]
    """Secrets that jobs may read, projects/PROJECT/secrets/NAME. Default: none."""
    image_repositories: NotRequired[list[str]]
    """Repositories of Artifact Registry from which agents may fetch the images of jobs. Default: none."""
    notifications: NotRequired[GcpNotificationsArgs]
    """Where the scheduler sends notifications about jobs: its account may send there. Default: nowhere."""


class GcpIdentity(pulumi.ComponentResource):
    """The service accounts of agents and scheduler, with custom roles. A cluster has no other credentials, and none of
    them is a key."""

    agent_account: pulumi.Output[str]
    """Email of the agents' service account."""
    scheduler_account: pulumi.Output[str]
    """Email of the scheduler's service account."""
    agent_account_ready: pulumi.Output[str]
    """The agents' service account; known once it has its permissions."""
    scheduler_account_ready: pulumi.Output[str]
    """The scheduler's service account; known once it has its permissions."""
    scheduler_unique_id: pulumi.Output[str]
    """Unique id of the scheduler's service account, a number."""
    job_role_name: pulumi.Output[str]
    """The role that lets jobs delete below their own prefixes, projects/PROJECT/roles/NAME. Nobody is granted it: the
    limits of each job's token name it. Empty without `job_role`."""

    def __init__(self, name: str, args: GcpIdentityArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("GcpIdentity"), name, {}, opts)
        problems = Problems()
        tagging.check_common(problems, args["cluster"], args["tags"])
        check_identity(problems, args)
        common.raise_bad(problems, f"GcpIdentity {name}")
        self._name, self._args = name, args
        self._project = preview_queries.read_place(self).apply(lambda place: place["project"])
        agent, scheduler = self._account(Role.AGENT), self._account(Role.SCHEDULER)
        may_agent = self._granting(Role.AGENT, agent)
        may_scheduler = self._granting(Role.SCHEDULER, scheduler)
        read = may_agent.role("reader", policies.READ, "Read objects of the cluster's buckets")
        write = may_agent.role("writer", policies.WRITE, "Write objects of the cluster's buckets")
        self._agent(may_agent, read, write)
        self.job_role_name = pulumi.Output.from_input("")
        if args.get("job_role", True):
            self.job_role_name = may_agent.role("jobs", policies.JOB_DELETES, "Delete, named in the limits of jobs")
        self._scheduler(may_scheduler, read, write)
        self.agent_account, self.scheduler_account = agent.email, scheduler.email
        # An instance that boots before its account may do anything would only log refusals.
        self.agent_account_ready = _ready(agent.email, may_agent)
        self.scheduler_account_ready = _ready(scheduler.email, may_scheduler)
        self.scheduler_unique_id = scheduler.unique_id
        self.register_outputs(outputs(self))

    def _account(self, role: Role) -> "serviceaccount.Account":
        cluster = self._args["cluster"]
        return serviceaccount.Account(
            f"{self._name}-{role.value}",
            account_id=account_id(cluster, role),
            display_name=f"Everspot {role.value} of cluster {cluster}",
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _granting(self, role: Role, account: "serviceaccount.Account") -> Granting:
        return Granting(self, f"{self._name}-{role.value}", self._args["cluster"], account.email, account.unique_id)

    def _agent(self, may: Granting, read: pulumi.Output[str], write: pulumi.Output[str]) -> None:
        args, cluster = self._args, self._args["cluster"]
        may.on_bucket("control-read", args["control_bucket"], read)
        on_prefixes(may, "control-write", args["control_bucket"], write, policies.AGENT_WRITES)
        reads = functools.partial(policies.below_or_list, prefixes=policies.AGENT_READS)
        may.on_bucket("data-read", args["data_bucket"], read, reads)
        on_prefixes(may, "data-write", args["data_bucket"], write, policies.AGENT_KEEPS)
        for suffix, former_suffix, bucket in common.name_by_target("read", args.get("read_buckets", [])):
            may.on_bucket(suffix, bucket, policies.VIEWER, former_suffix=former_suffix)
        leave = may.role("leaver", policies.LEAVE, "End the own instance")
        may.on_project("leave", self._project, leave, policies.match_machines(agents(cluster)))
        for suffix, former_suffix, secret in common.name_by_target("secret", args.get("secrets", [])):
            may.on_secret(suffix, secret, policies.ACCESSOR, former_suffix=former_suffix)
        for suffix, _, repository in common.name_by_target("repository", args.get("image_repositories", [])):
            place = REPOSITORY.fullmatch(repository)
            if place is not None:
                may.on_repository(suffix, place["location"], place["project"], place["name"], policies.PULLER)

    def _scheduler(self, may: Granting, read: pulumi.Output[str], write: pulumi.Output[str]) -> None:
        args, notifications = self._args, self._args.get("notifications", {})
        may.on_bucket("control-read", args["control_bucket"], read)
        notifier_prefixes = policies.NOTIFIER_KEEPS if notifications else ()
        on_prefixes(
            may, "control-write", args["control_bucket"], write, (*policies.SCHEDULER_WRITES, *notifier_prefixes)
        )
        watch = may.role("watcher", policies.WATCH, "See instances, their ends, and what capacity there is")
        may.on_project("watch", self._project, watch)
        listen = may.role("listener", policies.LISTEN, "Take messages of interruptions")
        may.on_subscription("listen", args["subscription"], listen)
        if "topic" in notifications:
            may.on_topic("notify", notifications["topic"], policies.PUBLISHER)
        if "webhook_secret" in notifications:
            may.on_secret("webhook", notifications["webhook_secret"], policies.ACCESSOR)


def check_identity(problems: Problems, args: GcpIdentityArgs) -> None:
    """Add a problem for each mistake in further buckets, secrets and notifications."""
    check_buckets(problems, args.get("read_buckets", []), job_role=args.get("job_role", True))
    check_secrets(problems, args.get("secrets", []))
    check_repositories(problems, args.get("image_repositories", []))
    if "notifications" in args:
        check_notifications(problems.at("notifications"), args["notifications"])


def check_buckets(problems: Problems, buckets: Sequence[str], *, job_role: bool) -> None:
    """Add every text that cannot be the name of a bucket, and more buckets than the limits of a job can name."""
    fits = not job_role or len(buckets) <= MOST_READ_BUCKETS
    limit = f"{len(buckets)} buckets, and the limits of a job's token name at most {MOST_READ_BUCKETS}"
    problems.need(fits, "readBuckets", f"{limit}: take fewer, or jobRole: false")
    for index, bucket in enumerate(buckets):
        valid = BUCKET.match(bucket) is not None
        problems.need(valid, f"readBuckets[{index}]", f"{shown(bucket)} is not the name of a bucket")


def check_secrets(problems: Problems, secrets: Sequence[str]) -> None:
    """Add every text that names no secret."""
    for index, secret in enumerate(secrets):
        reason = resource_problem(secret, SECRET_FORM)
        problems.need(reason is None, f"secrets[{index}]", reason or "")


def check_repositories(problems: Problems, repositories: Sequence[str]) -> None:
    """Add every text that names no repository of Artifact Registry."""
    for index, repository in enumerate(repositories):
        words = f"{shown(repository)} is not of the form LOCATION-docker.pkg.dev/PROJECT/REPOSITORY"
        problems.need(REPOSITORY.fullmatch(repository) is not None, f"imageRepositories[{index}]", words)


def on_prefixes(
    may: Granting,
    suffix: str,
    bucket: pulumi.Input[str],
    role: pulumi.Input[str],
    prefixes: tuple[str, ...],
    *,
    listed: bool = False,
) -> None:
    """Bind a role below prefixes of a bucket, by as many bindings as the conditions take. `listed`: the first of them
    also permits to list the bucket."""

    def build_condition(number: int, name: str) -> policies.Condition:
        if listed and number == 0:
            return policies.below_or_list(name, prefixes[: policies.PREFIXES_AT_ONCE])
        return policies.below(name, prefixes)[number]

    for number in range(len(policies.below("", prefixes))):
        may.on_bucket(f"{suffix}-{number}", bucket, role, functools.partial(build_condition, number))


def _ready(email: pulumi.Output[str], may: Granting) -> pulumi.Output[str]:
    return pulumi.Output.all(email, *[binding.urn for binding in may.bindings]).apply(lambda known: str(known[0]))
