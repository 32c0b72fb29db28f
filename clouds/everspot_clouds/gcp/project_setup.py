"""The setup of a new project on Google Cloud."""

import re
from collections.abc import Mapping

from everspot_core.validation.problems import Problems, shown

from everspot_clouds.base import bootstrap_steps
from everspot_clouds.base.project_setup import ProjectAnswers, SetupStep, check_region, filled, list_offered

_PROJECT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
_REGION = re.compile(r"[a-z]+(-[a-z]+)+\d+")
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")

REGIONS = frozenset(
    f"{area}{number}"
    for area, numbers in {
        "africa-south": (1,), "asia-east": (1, 2), "asia-northeast": (1, 2, 3), "asia-south": (1, 2),
        "asia-southeast": (1, 2, 3), "australia-southeast": (1, 2), "europe-central": (2,), "europe-north": (1, 2),
        "europe-southwest": (1,), "europe-west": (1, 2, 3, 4, 6, 8, 9, 10, 12), "me-central": (1, 2), "me-west": (1,),
        "northamerica-northeast": (1, 2), "northamerica-south": (1,), "southamerica-east": (1,),
        "southamerica-west": (1,), "us-central": (1,), "us-east": (1, 4, 5), "us-south": (1,), "us-west": (1, 2, 3, 4),
    }.items()
    for number in numbers
)  # fmt: skip
"""Compute Engine's regions: the regional endpoints of its discovery document compute.v1, revision 20261106."""
OTHER_ZONES = {"us-east1": "bcd", "europe-west1": "bcd"}
"""The regions whose zones do not begin with a (Compute Engine documentation, "Available regions and zones")."""

SERVICES = ("cloudkms", "cloudresourcemanager", "iam", "iamcredentials", "serviceusage", "storage", "sts")
"""The services that the bootstrap itself calls; the account's stack enables the rest."""

BOOTSTRAP_SETTINGS = """\
# Once per project, by hand and before everything else: the state of all stacks, and the service accounts of the
# repository's jobs. SETUP.md has the commands.
config:
  gcp:project: $account
  gcp:region: $region
  everspot:bootstrap:
    cloud: gcp
    tags: {Project: everspot, Team: "$team"}
    repository: {name: $repository$ids}
    # Who is notified when a team's month becomes expensive. You need `roles/billing.costsManager` at the billing
    # account, and the job that looks for drift `roles/billing.viewer`: docs/guide/bootstrap.md has the command.
    # spending:
    #   billingAccount: XXXXXX-XXXXXX-XXXXXX
    #   budgets: [{team: "$team", usdPerMonth: 1000}]
"""
ACCOUNT_SETTINGS = """\
# Once per project, before any cluster: Google's services that clusters use are switched on.
config:
  gcp:project: $account
  gcp:region: $region
  everspot:account:
    cloud: gcp
    tags: {Project: everspot, Team: "$team"}
"""
DEV_SETTINGS = """\
# For trying things: a store that goes with the stack, and no instance but the scheduler while no job waits; that is
# small, and a cluster of hundreds of jobs needs the usual e2-small.
config:
  gcp:project: $account
  gcp:region: $region
  everspot:cluster:
    cloud: gcp
    tags: {Project: everspot, Team: "$team"}
    imageFamily: everspot-dev
    zones: [$zones]
    schedulerType: e2-micro
    retainStore: false
    capacity:
      instanceTypes: [$types]
      elastic: {maxInstances: 4, maxUsdPerHour: 10}
"""
PROD_SETTINGS = """\
# `protect` refuses to delete or replace the buckets and the groups. A preview names the zones that the region does not
# have, and the types that a zone does not offer.
config:
  gcp:project: $account
  gcp:region: $region
  everspot:cluster:
    cloud: gcp
    tags: {Project: everspot, Team: "$team"}
    imageFamily: everspot-prod
    zones: [$zones]
    protect: true
    capacity:
      standing: {target: 4, onDemandBase: 1}
      elastic: {maxInstances: 8, maxUsdPerHour: 20}
      instanceTypes: [$types]
"""
SETTINGS = {
    "bootstrap": BOOTSTRAP_SETTINGS, "account": ACCOUNT_SETTINGS, "dev": DEV_SETTINGS, "prod": PROD_SETTINGS,
}  # fmt: skip
TYPES = ("g2-standard-4", "g2-standard-8", "g2-standard-12")

MAKES = (
    "Makes the bucket and the key for the state of stacks, the pool of identities that lets in the jobs of the "
    "repository, and the service accounts that they become to preview, to look for drift and to deploy. Where it ends "
    "with `Permission denied on Cloud KMS key`, run it again after two minutes: within that time a grant takes effect."
)
AGENTS = ("pubsub", "logging")
"""The services whose own accounts clusters grant roles to."""
MADE = (
    "Google makes its services' own accounts late, some only when a service is first used, and nothing can be granted "
    "to one that is not there: the last commands have them made before the first cluster needs them."
)
IMAGE = (
    "Bakes the image that instances start from, in the family that the settings name. training_image/bake/ of "
    "Everspot's sources has the Packer template."
)


class GcpStarter:
    """Google Cloud's part of a new project."""

    account = "project (its id)"
    usual_region = "us-central1"
    extras, price_cloud, names_host = "components-gcp", "gcp", False
    cluster_component, account_component = "GcpTrainingCluster", "GcpAccountSetup"

    def check(self, problems: Problems, answers: ProjectAnswers) -> None:
        """Add a problem for each mistake in project, region and team."""
        reason = f"{shown(answers.account)} has to be a project's id: 6 to 30 lower-case letters, digits and dashes"
        problems.need(bool(_PROJECT.fullmatch(answers.account)), "account", reason)
        valid = bool(_REGION.fullmatch(answers.region))
        if problems.need(valid, "region", f"{shown(answers.region)} is no region, such as {self.usual_region}"):
            check_region(problems, answers, REGIONS)
        reason = f"{shown(answers.team)} becomes a label: lower-case letters, digits, dashes and underscores"
        problems.need(bool(_LABEL.fullmatch(answers.team)), "team", reason)

    def settings(self, answers: ProjectAnswers) -> Mapping[str, str]:
        """Return the settings files' texts by stack."""
        zones = ", ".join(f"{answers.region}-{letter}" for letter in OTHER_ZONES.get(answers.region, "abc"))
        types = ", ".join(list_offered(answers.region, TYPES))
        return filled(answers, SETTINGS, account=answers.account, zones=zones, types=types)

    def steps(self, answers: ProjectAnswers) -> list[SetupStep]:
        """Return the steps until the first reviewed change."""
        state = f"gs://everspot-state-{answers.account}"
        key = f"projects/{answers.account}/locations/{answers.region}/keyRings/everspot/cryptoKeys/state"
        email = f"everspot-{{}}@{answers.account}.iam.gserviceaccount.com".format
        number = f"$(gcloud projects describe {answers.account} --format='value(projectNumber)')"
        variables = {
            "EVERSPOT_STATE": state,
            "EVERSPOT_GOOGLE_PROVIDER": f"projects/{number}/locations/global/workloadIdentityPools/everspot-reviews/"
            "providers/github",
            "EVERSPOT_GOOGLE_PREVIEW_ACCOUNT": email("preview"),
            "EVERSPOT_GOOGLE_DRIFT_ACCOUNT": email("drift"),
            "EVERSPOT_GOOGLE_DEPLOY_ACCOUNT": email("deploy"),
            "EVERSPOT_POLICY_SETTINGS": "stacks/rules.yaml",
        }
        agents = [
            f"gcloud beta services identity create --service={name}.googleapis.com --project {answers.account}"
            for name in AGENTS
        ]
        services = " ".join(f"{name}.googleapis.com" for name in SERVICES)
        image = "An instance for about half an hour, and the image: $0.05 a GB and month."
        return [
            bootstrap_steps.installed(),
            *bootstrap_steps.ids(answers),
            bootstrap_steps.bootstrapped(
                MAKES,
                before=(
                    "gcloud auth application-default login",  # as whom Pulumi's provider acts
                    # Some of Google's services, such as budgets, ask of a person which project the calls count for.
                    f"export USER_PROJECT_OVERRIDE=true GOOGLE_BILLING_PROJECT={answers.account}",
                    f"gcloud services enable {services} --project {answers.account}",
                ),
            ),
            bootstrap_steps.moved(state, f"gcpkms://{key}"),
            *bootstrap_steps.stacks_made(f"gcpkms://{key}", MADE, agents),
            SetupStep("Image", IMAGE, costs=image),
            *bootstrap_steps.published(answers, variables),
        ]

    def module_steps(self, answers: ProjectAnswers, module: str) -> list[str]:
        """Return nothing: a preview names what is missing."""
        return []


STARTER = GcpStarter()
