"""The needs of a project before its first reviewed change: the state of stacks, and the identities of reviews."""

import re
from typing import NotRequired, TypedDict

import pulumi
from everspot_clouds.gcp.labels import to_labels
from everspot_core.validation.bounds import check_values
from everspot_core.validation.problems import Problems, shown
from pulumi_gcp import billing, kms, projects, serviceaccount, storage

from everspot import common
from everspot.gcp import preview_queries, tagging
from everspot.gcp.bootstrap_grants import SUBJECT_AT_MOST, IdentityPool, add_identity_pool, grant, grant_impersonation
from everspot.parts import outputs
from everspot.repository import RepositoryArgs, ReviewPart, check_repository, subjects
from everspot.spending import TeamBudgetArgs, budget_suffix, check_budgets

WARNINGS = (("CURRENT_SPEND", 0.8), ("CURRENT_SPEND", 1.0), ("FORECASTED_SPEND", 1.0))
"""When a budget notifies: spent or forecast costs of the month, as a fraction of the limit."""

MOST_CHANNELS = 5
"""Of one budget (Cloud Billing documentation, "Customize budget alert email recipients")."""

_BILLING = re.compile(r"[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}")
_CHANNEL = re.compile(r"projects/[a-z][a-z0-9:.-]+/notificationChannels/\d+")
_EMAIL = re.compile(r"[a-z0-9-]+@[a-z0-9.:-]+\.iam\.gserviceaccount\.com|\d+-compute@developer\.gserviceaccount\.com")
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_LOCATION = re.compile(r"[a-z]+(-[a-z]+)*\d*")


BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")

ROTATION = f"{90 * 24 * 3600}s"
OLD_STATES_DAYS = 90
"""Days for which overwritten or deleted states can be restored."""

ABORT_UPLOAD_DAYS = 2


class GcpSpendingArgs(TypedDict):
    """The watch over a billing account's spending, and its recipients."""

    billing_account: str
    """The billing account, XXXXXX-XXXXXX-XXXXXX, whose currency has to be the dollar. The person who applies the stack
    needs `roles/billing.costsManager` there."""
    budgets: list[TeamBudgetArgs]
    """The budgets, one for each team."""
    channels: NotRequired[list[str]]
    """Monitoring's notification channels that get the messages, projects/…/notificationChannels/…, at most 5. Default:
    the administrators of the billing account, by email."""


class GcpBootstrapArgs(TypedDict):
    """Inputs of `GcpBootstrap`."""

    tags: dict[str, str]
    """Tags of the bucket and the key, as labels; Project, Team and Environment are mandatory."""
    repository: NotRequired[RepositoryArgs]
    """The repository on GitHub whose jobs become the three service accounts. Default: none, only runners do."""
    preview_runner_accounts: NotRequired[list[str]]
    """Emails of the service accounts of self-hosted runners that preview changes, on a forge without identity tokens.
    They run what a pull request says. Default: none."""
    deploy_runner_accounts: NotRequired[list[str]]
    """Emails of the service accounts of other self-hosted runners, which only run what was merged: they become deploy
    and drift. Default: none."""
    state_bucket: NotRequired[str]
    """Name of the bucket for the state of stacks. Default: everspot-state-PROJECT."""
    location: NotRequired[str]
    """Location of the bucket and of its key, a region. It cannot be changed later. Default: the provider's region."""
    spending: NotRequired[GcpSpendingArgs]
    """Budgets of teams. Default: nothing is watched."""


class GcpBootstrap(pulumi.ComponentResource):
    """What a project has once, before its first reviewed change.

    A bucket and a key for the state of stacks; the service accounts preview, drift and deploy, which the jobs of one
    repository become by their identity tokens; budgets. Put it into a stack of its own and apply that by hand.
    `pulumi destroy` deletes neither the bucket nor the key.
    """

    state_url: pulumi.Output[str]
    """The backend of all stacks: `pulumi login` takes it, and the workflows' variable EVERSPOT_STATE."""
    secrets_provider: pulumi.Output[str]
    """What `pulumi stack init --secrets-provider` takes: stacks' secrets are encrypted with the key."""
    identity_provider: pulumi.Output[str]
    """The provider of identities, projects/…/providers/…, for the variable EVERSPOT_GOOGLE_PROVIDER; empty without a
    repository."""
    preview_account: pulumi.Output[str]
    """Email of the service account of jobs that preview a change."""
    drift_account: pulumi.Output[str]
    """Email of the service account of jobs that look for drift."""
    deploy_account: pulumi.Output[str]
    """Email of the service account of jobs that apply what was merged."""

    def __init__(self, name: str, args: GcpBootstrapArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("GcpBootstrap"), name, {}, opts)
        problems = Problems()
        bootstrap_problems(problems, args)
        common.raise_bad(problems, f"GcpBootstrap {name}")
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        place = preview_queries.read_place(self)
        self._project = place.apply(lambda found: found["project"])
        location: pulumi.Input[str] = args.get("location") or place.apply(lambda found: found["region"])
        bucket_name: pulumi.Input[str] = args.get("state_bucket") or self._project.apply(
            lambda p: f"everspot-state-{p}"
        )
        labels = to_labels(args["tags"])
        key = add_state_key(self, name, location, labels)
        bucket = add_state_bucket(self, f"{name}-state", bucket_name, location, key, labels)
        identity_pool = add_identity_pool(self, name, args["repository"]) if "repository" in args else None
        self.preview_account = self._account(ReviewPart.PREVIEW, bucket.name, key.id, identity_pool)
        self.drift_account = self._account(ReviewPart.DRIFT, bucket.name, key.id, identity_pool)
        self.deploy_account = self._account(ReviewPart.DEPLOY, bucket.name, key.id, identity_pool)
        if "spending" in args:
            self._budgets(args["spending"])
        self.state_url = pulumi.Output.concat("gs://", bucket.name)
        self.secrets_provider = pulumi.Output.concat("gcpkms://", key.id)
        self.identity_provider = identity_pool.provider if identity_pool is not None else pulumi.Output.from_input("")
        self.register_outputs(outputs(self))

    def _account(
        self, part: ReviewPart, bucket: pulumi.Output[str], key: pulumi.Output[str], identity_pool: IdentityPool | None
    ) -> pulumi.Output[str]:
        account = serviceaccount.Account(
            f"{self._name}-{part.value}",
            account_id=f"everspot-{part.value}",
            display_name=f"Everspot: {part.value}",
            opts=self._child,
        )
        previews, deploys = self._args.get("preview_runner_accounts", []), self._args.get("deploy_runner_accounts", [])
        runners = previews if part is ReviewPart.PREVIEW else deploys
        grant_impersonation(self, f"{self._name}-{part.value}", account, part, identity_pool, runners)
        grant(self, f"{self._name}-{part.value}", account, part, project=self._project, bucket=bucket, key=key)
        return pulumi.Output.from_input(account.email)

    def _budgets(self, settings: GcpSpendingArgs) -> None:
        number = preview_queries.read_project_number(self)
        # No budget can be made or read while the API is off, and nothing else needs it.
        on = projects.Service(
            f"{self._name}-budgets-api",
            service="billingbudgets.googleapis.com",
            disable_on_destroy=False,
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )
        channels = settings.get("channels", [])
        notifications = {"monitoring_notification_channels": channels, "disable_default_iam_recipients": bool(channels)}
        for budget in settings["budgets"]:
            team, dollars = to_labels({"Team": budget["team"]}), round(budget["usd_per_month"], 2)
            cents = round(dollars * 100) % 100
            billing.Budget(
                f"{self._name}-{budget_suffix(budget['team'])}",
                billing_account=settings["billing_account"],
                display_name=f"{self._name}: {budget['team']}"[:60],
                budget_filter={"projects": [pulumi.Output.concat("projects/", number)], "labels": team},
                amount={
                    "specified_amount": {"currency_code": "USD", "units": str(int(dollars)), "nanos": cents * 10**7}
                },
                threshold_rules=[{"threshold_percent": part, "spend_basis": basis} for basis, part in WARNINGS],
                all_updates_rule=notifications if channels else None,
                opts=pulumi.ResourceOptions(parent=self, depends_on=[on]),
            )


def bootstrap_problems(problems: Problems, args: GcpBootstrapArgs) -> None:
    """Add a problem for each mistake in the inputs of a project's bootstrap."""
    tagging.check_tags(problems, args["tags"])
    if "repository" in args:
        here, repository = problems.at("repository"), args["repository"]
        check_repository(here, repository)
        longest = max((len(subject) for part in ReviewPart for subject in subjects(repository, part)), default=0)
        reason = f"makes subjects of {longest} characters, and Google takes {SUBJECT_AT_MOST}"
        here.need(longest <= SUBJECT_AT_MOST, "", reason)
    _check_runners(problems, args)
    bucket, location = args.get("state_bucket"), args.get("location")
    reason = f"{shown(bucket)} has to be 3 to 63 lower-case letters, digits and dashes, without `google`"
    fits = bucket is None or (bool(BUCKET_NAME.fullmatch(bucket)) and "goog" not in bucket)
    problems.need(fits, "stateBucket", reason)
    valid = location is None or bool(_LOCATION.fullmatch(location))
    problems.need(valid, "location", f"{shown(location)} is no region")
    if "spending" in args:
        _check_spending(problems.at("spending"), args["spending"])
    check_values(problems, args)


def _check_runners(problems: Problems, args: GcpBootstrapArgs) -> None:
    previews, deploys = args.get("preview_runner_accounts", []), args.get("deploy_runner_accounts", [])
    problems.need(
        "repository" in args or bool(previews and deploys),
        "repository",
        "is missing: without it, give previewRunnerAccounts and deployRunnerAccounts, or nobody could use the accounts",
    )
    shared = sorted(set(previews) & set(deploys))
    problems.need(not shared, "deployRunnerAccounts", f"{', '.join(shared)} would apply what no one has merged")
    for name, emails in (("previewRunnerAccounts", previews), ("deployRunnerAccounts", deploys)):
        for index, email in enumerate(emails):
            reason = f"{shown(email)} is no service account's email"
            problems.need(bool(_EMAIL.fullmatch(email)), f"{name}[{index}]", reason)


def _check_spending(problems: Problems, settings: GcpSpendingArgs) -> None:
    account, channels = settings["billing_account"], settings.get("channels", [])
    problems.need(
        bool(_BILLING.fullmatch(account)), "billingAccount", f"{shown(account)} has to be XXXXXX-XXXXXX-XXXXXX"
    )
    check_budgets(problems, settings["budgets"])
    for index, budget in enumerate(settings["budgets"]):
        sound = bool(_LABEL.fullmatch(budget["team"]))
        reason = f"{shown(budget['team'])} cannot be a label: lower-case letters, digits, dashes and underscores"
        problems.need(sound, f"budgets[{index}].team", reason)
    problems.need(bool(settings["budgets"]), "budgets", "is empty: leave out spending")
    reason = f"at most {MOST_CHANNELS}; {len(channels)} are given"
    problems.need(len(channels) <= MOST_CHANNELS, "channels", reason)
    for index, channel in enumerate(channels):
        fits = bool(_CHANNEL.fullmatch(channel))
        problems.need(fits, f"channels[{index}]", f"{shown(channel)} has to be projects/…/notificationChannels/…")


def add_state_key(
    parent: pulumi.Resource, name: str, location: pulumi.Input[str], labels: dict[str, str]
) -> "kms.CryptoKey":
    """Declare the key, on a ring of its own. Neither is ever deleted: Google deletes no ring, and without the key no
    state can be read."""
    retained = pulumi.ResourceOptions(parent=parent, retain_on_delete=True)
    ring = kms.KeyRing(f"{name}-ring", name="everspot", location=location, opts=retained)
    return kms.CryptoKey(
        f"{name}-state-key",
        name="state",
        key_ring=ring.id,
        purpose="ENCRYPT_DECRYPT",
        rotation_period=ROTATION,
        labels=labels,
        opts=pulumi.ResourceOptions.merge(retained, pulumi.ResourceOptions(protect=True)),
    )


def add_state_bucket(
    parent: pulumi.Resource,
    name: str,
    bucket: pulumi.Input[str],
    location: pulumi.Input[str],
    key: "kms.CryptoKey",
    labels: dict[str, str],
) -> "storage.Bucket":
    """Declare the bucket: versioned, private, encrypted with the key, and never deleted. Without the grant to Cloud
    Storage's service agent no bucket can be made with a key (Cloud Storage documentation, "Use customer-managed
    encryption keys")."""
    message = "Cloud Storage's service agent cannot be asked for (storage.projects.getServiceAccount)."
    agent = preview_queries.invoke(
        parent, "storage/getProjectServiceAccount:getProjectServiceAccount", {}, failed=message
    )
    use = kms.CryptoKeyIAMMember(
        f"{name}-encryption",
        crypto_key_id=key.id,
        role="roles/cloudkms.cryptoKeyEncrypterDecrypter",
        member=agent.apply(lambda found: f"serviceAccount:{found['emailAddress']}"),
        # Without the grant Cloud Storage could neither read nor write the bucket's objects.
        opts=pulumi.ResourceOptions(parent=parent, retain_on_delete=True),
    )
    return storage.Bucket(
        name,
        name=bucket,
        location=pulumi.Output.from_input(location).apply(str.upper),  # as the API answers it
        storage_class="STANDARD",
        uniform_bucket_level_access=True,
        public_access_prevention="enforced",
        versioning={"enabled": True},
        encryption={"default_kms_key_name": key.id},
        lifecycle_rules=[
            {"action": {"type": "Delete"}, "condition": {"days_since_noncurrent_time": OLD_STATES_DAYS}},
            {"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": ABORT_UPLOAD_DAYS}},
        ],
        labels=labels,
        opts=pulumi.ResourceOptions(parent=parent, protect=True, retain_on_delete=True, depends_on=[use]),
    )
