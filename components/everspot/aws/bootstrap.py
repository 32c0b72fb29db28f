"""The needs of an account before its first reviewed change: the state of stacks, and the identities of reviews."""

import json
import re
from typing import Any, NotRequired, TypedDict

import pulumi
from everspot_clouds.aws.rules import STATE_ALIAS
from everspot_clouds.kubernetes.rules import EKS_NAME
from everspot_core.validation.bounds import check_values
from everspot_core.validation.problems import Problems, shown
from pulumi_aws import iam, kms, s3

from everspot import common
from everspot.aws import arns, bootstrap_policies, preview_queries, tagging
from everspot.aws.bootstrap_policies import BootstrapPlace
from everspot.aws.policies import Document
from everspot.aws.private_bucket import UNFINISHED_UPLOADS, close_bucket
from everspot.aws.spending import AwsSpendingArgs, add_spending, check_spending
from everspot.parts import outputs
from everspot.repository import ISSUER, RepositoryArgs, ReviewPart, check_repository

POLICY_AT_MOST = 6_144
"""Characters of a managed policy (IAM User Guide, "IAM and AWS STS quotas")."""


BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")

OLD_STATES_DAYS = 90
"""Days for which overwritten or deleted states can be restored."""


class AwsBootstrapArgs(TypedDict):
    """Inputs of `AwsBootstrap`."""

    tags: dict[str, str]
    """Tags of everything that is made; Project, Team and Environment are mandatory."""
    repository: NotRequired[RepositoryArgs]
    """The repository on GitHub whose jobs take the three roles. Default: none, only runners take them."""
    preview_runner_role_arns: NotRequired[list[str]]
    """ARNs of the roles of self-hosted runners that preview changes, on a forge without identity tokens. They run what
    a pull request says. Default: none."""
    deploy_runner_role_arns: NotRequired[list[str]]
    """ARNs of the roles of other self-hosted runners, which only run what was merged: they take the roles deploy and
    drift. Default: none."""
    oidc_provider_arn: NotRequired[str]
    """ARN of the account's only identity provider for token.actions.githubusercontent.com. Default: it is made."""
    state_bucket: NotRequired[str]
    """Name of the bucket for the state of stacks. Default: everspot-state-ACCOUNT."""
    key_arns: NotRequired[list[str]]
    """ARNs of the customer keys of clusters' buckets and volumes, and of the secrets that jobs read: deployments and
    clusters' roles may use no others. Default: none."""
    bucket_arns: NotRequired[list[str]]
    """ARNs of the buckets that clusters name in `readBucketArns`: their roles may read no others than their own.
    Default: none."""
    secret_arns: NotRequired[list[str]]
    """ARNs of the Secrets Manager secrets and SSM parameters that clusters' roles may read at most, also for webhooks;
    an ARN may end in `*` after a part of the name. Default: those of this account whose names begin with everspot or
    /everspot."""
    image_repositories: NotRequired[list[str]]
    """Repositories of ECR that clusters name in `imageRepositories`: their roles may pull from no others. Default:
    none."""
    image_parameter_arns: NotRequired[list[str]]
    """ARNs of the SSM parameters that clusters name in `imageParameter`, besides those under /everspot/image/: the
    roles of the repository's jobs may read no others. Default: none."""
    eks_clusters: NotRequired[list[str]]
    """Names of the EKS clusters in which the repository's jobs may declare clusters; each has to give their roles
    access as well. Default: none."""
    spending: NotRequired[AwsSpendingArgs]
    """Budgets, unusual costs, and the tags that the bill is split by. Default: nothing is watched."""


class AwsBootstrap(pulumi.ComponentResource):
    """What an account has once, before its first reviewed change.

    A bucket and a key for the state of stacks; the roles preview, drift and deploy, which the jobs of one repository
    take by their identity tokens; the boundary of the roles that deployments make; the account's watch over spending.
    Put it into a stack of its own and apply that by hand: the role deploy may change none of it. `pulumi destroy`
    deletes neither the bucket, with its settings, nor the key, with its alias.
    """

    state_url: pulumi.Output[str]
    """The backend of all stacks: `pulumi login` takes it, and the workflows' variable EVERSPOT_STATE."""
    secrets_provider: pulumi.Output[str]
    """What `pulumi stack init --secrets-provider` takes: stacks' secrets are encrypted with the key."""
    preview_role_arn: pulumi.Output[str]
    """ARN of the role of jobs that preview a change."""
    drift_role_arn: pulumi.Output[str]
    """ARN of the role of jobs that look for drift."""
    deploy_role_arn: pulumi.Output[str]
    """ARN of the role of jobs that apply what was merged."""
    boundary_arn: pulumi.Output[str]
    """ARN of the boundary that clusters' roles have to have: their setting `permissionsBoundaryArn`."""

    def __init__(self, name: str, args: AwsBootstrapArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("AwsBootstrap"), name, {}, opts)
        problems = Problems()
        common.check_name(problems, name, "-deploy", 64, "roles")
        bootstrap_problems(problems, args)
        common.raise_bad(problems, f"AwsBootstrap {name}")
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        caller = preview_queries.invoke(
            self, "index/getCallerIdentity:getCallerIdentity", {}, failed=preview_queries.CREDENTIALS
        )
        partition = caller.apply(lambda found: str(found["arn"]).split(":")[1])
        account = caller.apply(lambda found: str(found["accountId"]))
        region = preview_queries.read_region(self)
        key = self._key(account, partition)
        bucket_name: pulumi.Input[str] = args.get("state_bucket") or account.apply(
            lambda found: f"everspot-state-{found}"
        )
        bucket = add_state_bucket(self, f"{name}-state", bucket_name, key.arn, args["tags"])
        facts = pulumi.Output.all(partition=partition, account=account, bucket=bucket.arn, key=key.arn)
        self._place = facts.apply(
            lambda found: BootstrapPlace(**found, name=name, stack=pulumi.get_stack(), **_existing_resources(args))
        )
        self.boundary_arn = self._policy("boundary", bootstrap_policies.boundary).arn
        provider = self._github()
        self.preview_role_arn = self._role(ReviewPart.PREVIEW, provider, args.get("preview_runner_role_arns", []))
        deployers = args.get("deploy_runner_role_arns", [])
        self.drift_role_arn = self._role(ReviewPart.DRIFT, provider, deployers)
        self.deploy_role_arn = self._role(ReviewPart.DEPLOY, provider, deployers)
        if "spending" in args:
            add_spending(self, name, args["spending"], args["tags"])
        self.state_url = pulumi.Output.concat("s3://", bucket.bucket, "?region=", region)
        self.secrets_provider = pulumi.Output.concat("awskms:///", STATE_ALIAS, "?region=", region)
        self.register_outputs(outputs(self))

    def _key(self, account: pulumi.Output[str], partition: pulumi.Output[str]) -> kms.Key:
        key = kms.Key(
            f"{self._name}-state-key",
            description="Everspot: the state of stacks, and the secrets in it",
            enable_key_rotation=True,
            deletion_window_in_days=30,
            policy=pulumi.Output.all(account, partition).apply(lambda f: _text(bootstrap_policies.key_policy(*f))),
            tags=self._args["tags"],
            # Without the key no state can be read any more.
            opts=pulumi.ResourceOptions(parent=self, protect=True, retain_on_delete=True),
        )
        kms.Alias(
            f"{self._name}-state-alias",
            name=STATE_ALIAS,
            target_key_id=key.key_id,
            # The stacks' secrets provider names the alias, and not the key.
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )
        return key

    def _github(self) -> pulumi.Output[str]:
        """Return the ARN of the forge's identity provider; empty without a repository."""
        provider_arn = self._args.get("oidc_provider_arn")
        if provider_arn is not None or "repository" not in self._args:
            return pulumi.Output.from_input(provider_arn or "")
        provider = iam.OpenIdConnectProvider(
            f"{self._name}-github",
            url=ISSUER,
            client_id_lists=[bootstrap_policies.AUDIENCE],
            tags=self._args["tags"],
            opts=self._child,
        )
        return provider.arn

    def _role(self, part: ReviewPart, provider: pulumi.Output[str], runners: list[str]) -> pulumi.Output[str]:
        repository = self._args.get("repository")
        role = iam.Role(
            f"{self._name}-{part.value}",
            name=f"{self._name}-{part.value}",  # which the boundary's and the deployments' own refusals name
            description=f"Everspot: jobs that {_DOES[part]}",
            assume_role_policy=provider.apply(
                lambda arn: _text(bootstrap_policies.trust(arn, repository, part, runners))
            ),
            tags=self._args["tags"],
            opts=self._child,
        )
        for suffix, document in bootstrap_policies.documents(part, self._args.get("eks_clusters", [])).items():
            policy = self._policy(f"{part.value}-{suffix}", document)
            attached = f"{self._name}-{part.value}-{suffix}-attached"
            iam.RolePolicyAttachment(attached, role=role.name, policy_arn=policy.arn, opts=self._child)
        return role.arn

    def _policy(self, suffix: str, document: bootstrap_policies.Written) -> iam.Policy:
        name = f"{self._name}-{suffix}"
        return iam.Policy(
            name,
            name=name,
            policy=self._place.apply(lambda place: _text(document(place))),
            tags=self._args["tags"],
            opts=self._child,
        )


_DOES = {
    ReviewPart.PREVIEW: "preview a change",
    ReviewPart.DRIFT: "look for drift",
    ReviewPart.DEPLOY: "apply what was merged",
}


def _existing_resources(args: AwsBootstrapArgs) -> dict[str, Any]:
    """Return the existing resources that the inputs name."""
    secrets = args.get("secret_arns")
    return {
        "keys": tuple(args.get("key_arns", [])),
        "buckets": tuple(args.get("bucket_arns", [])),
        "secrets": None if secrets is None else tuple(secrets),
        "repositories": tuple(filter(None, map(arns.repository_arn, args.get("image_repositories", [])))),
        "images": tuple(args.get("image_parameter_arns", [])),
        "eks_clusters": tuple(args.get("eks_clusters", [])),
    }


def _text(document: Document) -> str:
    return json.dumps(document, separators=(",", ":"))


def bootstrap_problems(problems: Problems, args: AwsBootstrapArgs) -> None:
    """Add a problem for each mistake in the inputs of an account's bootstrap."""
    tagging.check_tags(problems, args["tags"])
    if "repository" in args:
        check_repository(problems.at("repository"), args["repository"])
    previews, deploys = args.get("preview_runner_role_arns", []), args.get("deploy_runner_role_arns", [])
    problems.need(
        "repository" in args or bool(previews and deploys),
        "repository",
        "is missing: without it, give previewRunnerRoleArns and deployRunnerRoleArns, or nobody could take the roles",
    )
    shared = sorted(set(previews) & set(deploys))
    problems.need(not shared, "deployRunnerRoleArns", f"{', '.join(shared)} would apply what no one has merged")
    arns.check_arns(problems, "previewRunnerRoleArns", previews, "iam", "role/")
    arns.check_arns(problems, "deployRunnerRoleArns", deploys, "iam", "role/")
    arns.check_arns(problems, "keyArns", args.get("key_arns", []), "kms", "key/")
    arns.check_arns(problems, "bucketArns", args.get("bucket_arns", []), "s3", "")
    arns.check_secrets(problems, args.get("secret_arns", []))
    arns.check_repositories(problems, args.get("image_repositories", []))
    arns.check_arns(problems, "imageParameterArns", args.get("image_parameter_arns", []), "ssm", "parameter/")
    place = BootstrapPlace("aws", "0" * 12, "n" * 57, "", "b" * 76, "k" * 90, **_existing_resources(args))
    for index, name in enumerate(args.get("eks_clusters", [])):
        fits = bool(EKS_NAME.fullmatch(name))
        problems.need(fits, f"eksClusters[{index}]", f"{shown(name)} is no name of an EKS cluster")
    written = bootstrap_policies.documents(ReviewPart.DEPLOY, args.get("eks_clusters", []))
    documents = (bootstrap_policies.boundary, *written.values())
    room = POLICY_AT_MOST - max(len(_text(document(place))) for document in documents)
    reason = f"{-room} characters too many are named for one policy of IAM: name several by an ARN that ends in *"
    problems.need(
        room >= 0, "secretArns, bucketArns, keyArns, imageRepositories, imageParameterArns, eksClusters", reason
    )
    arns.check_arn(problems, args, "oidc_provider_arn", "iam", "oidc-provider/")
    bucket = args.get("state_bucket")
    reason = f"{shown(bucket)} has to be 3 to 63 lower-case letters, digits and dashes"
    problems.need(bucket is None or bool(BUCKET_NAME.fullmatch(bucket)), "stateBucket", reason)
    if "spending" in args:
        check_spending(problems.at("spending"), args["spending"])
    check_values(problems, args)


def add_state_bucket(
    parent: pulumi.Resource, name: str, bucket: pulumi.Input[str], key_arn: pulumi.Input[str], tags: dict[str, str]
) -> s3.Bucket:
    """Declare the bucket: versioned, private, encrypted with a customer key, over TLS alone, and never deleted."""
    # The settings that protect the bucket stay as long as the bucket does.
    child = pulumi.ResourceOptions(parent=parent, retain_on_delete=True)
    protected = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(protect=True))
    state = s3.Bucket(name, bucket=bucket, tags=tags, opts=protected)
    close_bucket(name, state, key_arn, child)
    versioned = s3.BucketVersioning(
        f"{name}-versions", bucket=state.id, versioning_configuration={"status": "Enabled"}, opts=child
    )
    rules: list[s3.BucketLifecycleConfigurationRuleArgsDict] = [
        {
            "id": "old-states",
            "status": "Enabled",
            "filter": {"prefix": ""},
            "noncurrent_version_expiration": {"noncurrent_days": OLD_STATES_DAYS},
            "expiration": {"expired_object_delete_marker": True},
        },
        UNFINISHED_UPLOADS,
    ]
    after = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[versioned]))
    s3.BucketLifecycleConfiguration(f"{name}-lifecycle", bucket=state.id, rules=rules, opts=after)
    return state
