"""The setup of a new project on AWS."""

import re
from collections import Counter
from collections.abc import Collection, Mapping

import boto3
from everspot_core.validation.problems import Problems, shown

from everspot_clouds.aws.rules import BOOTSTRAP, STATE_ALIAS, partition
from everspot_clouds.base import bootstrap_steps
from everspot_clouds.base.project_setup import ProjectAnswers, SetupStep, check_region, filled, list_offered
from everspot_clouds.price_files import project_table

_ACCOUNT = re.compile(r"\d{12}")
_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d")

BOOTSTRAP_SETTINGS = """\
# Once per account, by hand and before everything else: the state of all stacks, the roles of the repository's jobs, and
# the account's watch over spending. SETUP.md has the commands.
config:
  aws:region: $region
  aws:allowedAccountIds: ["$number"]
  everspot:bootstrap:
    cloud: aws
    tags: {Project: everspot, Team: "$team"}
    repository: {name: $repository$ids}
    # Who is notified when a team's month becomes expensive. The bill has to be split by the tag Team first: that is
    # `allocationTags: [Project, Team, Environment, ModelVersion]`, in the account that pays, a day after the first use.
    # spending:
    #   emails: [you@example.com]
    #   budgets: [{team: "$team", usdPerMonth: 1000}]
    #   anomalies: {usd: 100}
"""
ACCOUNT_SETTINGS = """\
# Once per account, before any cluster: the service-linked roles that EC2 Fleet and Spot need.
config:
  aws:region: $region
  aws:allowedAccountIds: ["$number"]
  everspot:account:
    cloud: aws
    tags: {Project: everspot, Team: "$team"}
"""
DEV_SETTINGS = """\
# For trying things: one zone (endpoints cost money per zone), no queue of EC2's notices (it needs an endpoint; agents
# hear of interruptions by themselves), no role for jobs (it needs an endpoint, too; a job can change the others), a
# store that goes with the stack, and no instance but the scheduler while no job waits; that is small, and a cluster of
# hundreds of jobs needs the usual t3.small.
config:
  aws:region: $region
  aws:allowedAccountIds: ["$number"]
  everspot:cluster:
    cloud: aws
    tags: {Project: everspot, Team: "$team"}
    permissionsBoundaryArn: $boundary
    imageParameter: /everspot/image/dev
    zones: [$zone]
    schedulerType: t3.micro
    retainStore: false
    interruptionEvents: false
    jobRole: false
    capacity:
      instanceTypes: [$dev]
      elastic: {maxInstances: 4, maxUsdPerHour: 10}
"""
PROD_SETTINGS = """\
# `protect` refuses to delete or replace the buckets and the fleets. A preview names the zones that the region does not
# have, and the types that a zone does not offer.
config:
  aws:region: $region
  aws:allowedAccountIds: ["$number"]
  everspot:cluster:
    cloud: aws
    tags: {Project: everspot, Team: "$team"}
    permissionsBoundaryArn: $boundary
    imageParameter: /everspot/image/prod
    zones: [$zones]
    protect: true
    capacity:
      standing: {target: 4, onDemandBase: 1, weightBy: gpu}
      elastic: {maxInstances: 8, maxUsdPerHour: 20}
      instanceTypes: [$prod]
"""
SETTINGS = {
    "bootstrap": BOOTSTRAP_SETTINGS, "account": ACCOUNT_SETTINGS, "dev": DEV_SETTINGS, "prod": PROD_SETTINGS,
}  # fmt: skip
DEV_TYPES = ("g4dn.xlarge", "g5.xlarge", "g6.xlarge")
ZONES = 3
"""Availability zones of a cluster with standing capacity."""
PROD_TYPES = ("g5.xlarge", "g5.2xlarge", "g6.xlarge", "g6.2xlarge")

MAKES = (
    "Makes the bucket and the key for the state of stacks, the identity provider of GitHub, the roles that jobs take "
    "to preview, to look for drift and to deploy, and the boundary of all roles that deployments make."
)
IMAGE = (
    "Bakes the image that instances start from, and writes its id into the parameter that the settings name. "
    "training_image/bake/ of Everspot's sources has the Packer template."
)


class AwsStarter:
    """AWS's part of a new project."""

    account = "account (12 digits)"
    usual_region = "us-east-2"
    extras, price_cloud, names_host = "components-aws", "aws", False
    cluster_component, account_component = "AwsTrainingCluster", "AwsAccountSetup"

    def check(self, problems: Problems, answers: ProjectAnswers) -> None:
        """Add a problem for each mistake in account, region and team."""
        fits = bool(_ACCOUNT.fullmatch(answers.account))
        problems.need(fits, "account", f"{shown(answers.account)} has to be 12 digits: `aws sts get-caller-identity`")
        valid = bool(_REGION.fullmatch(answers.region))
        if problems.need(valid, "region", f"{shown(answers.region)} is no region, such as {self.usual_region}"):
            check_region(problems, answers, regions())

    def settings(self, answers: ProjectAnswers) -> Mapping[str, str]:
        """Return the settings files' texts by stack."""
        boundary = f"arn:{partition(answers.region)}:iam::{answers.account}:policy/{BOOTSTRAP}-boundary"
        dev, prod = list_offered(answers.region, DEV_TYPES), list_offered(answers.region, PROD_TYPES)
        zones = list_zones(answers.region, prod)
        return filled(
            answers,
            SETTINGS,
            number=answers.account,
            boundary=boundary,
            dev=", ".join(dev),
            prod=", ".join(prod),
            zone=zones[0],
            zones=", ".join(zones[:ZONES]),
        )

    def steps(self, answers: ProjectAnswers) -> list[SetupStep]:
        """Return the steps until the first reviewed change."""
        state = f"s3://everspot-state-{answers.account}?region={answers.region}"
        secrets = f"awskms:///{STATE_ALIAS}?region={answers.region}"
        role = f"arn:{partition(answers.region)}:iam::{answers.account}:role/{BOOTSTRAP}-".__add__
        variables = {
            "EVERSPOT_STATE": state,
            "EVERSPOT_AWS_REGION": answers.region,
            "EVERSPOT_AWS_PREVIEW_ROLE": role("preview"),
            "EVERSPOT_AWS_DRIFT_ROLE": role("drift"),
            "EVERSPOT_AWS_DEPLOY_ROLE": role("deploy"),
            "EVERSPOT_POLICY_SETTINGS": "stacks/rules.yaml",
        }
        signed_in = (
            f'test "$(aws sts get-caller-identity --query Account --output text)" = {answers.account} || '
            f"{{ echo 'The AWS credentials are not of account {answers.account}.' >&2; false; }}"
        )
        return [
            bootstrap_steps.installed(),
            *bootstrap_steps.ids(answers),
            bootstrap_steps.bootstrapped(MAKES, before=(signed_in,)),
            bootstrap_steps.moved(state, secrets),
            *bootstrap_steps.stacks_made(secrets),
            SetupStep(
                "Image", IMAGE, costs="An instance for about half an hour, and the snapshot: $0.05 a GB and month."
            ),
            *bootstrap_steps.published(answers, variables),
        ]

    def module_steps(self, answers: ProjectAnswers, module: str) -> list[str]:
        """Return nothing: a preview names what is missing."""
        return []


def list_zones(region: str, types: Collection[str]) -> list[str]:
    """Return the zones of a region with a Spot price of some of the types, those with the most types first, by the
    project's price table. Where it has none, the zones a, b and c, which most regions have."""
    table, offers = project_table("aws", region), Counter[str]()
    for row in table.prices if table is not None else ():
        if row.instance_type in types:
            # A local zone, such as us-east-1-atl-2a, has to be switched on in the account.
            offers.update(zone for zone in row.spot_usd_per_hour if len(zone) == len(region) + 1)
    names = sorted(offers, key=lambda zone: (-offers[zone], zone))
    return names or [f"{region}{letter}" for letter in "abc"]


def regions() -> list[str]:
    """EC2's regions in all partitions, as far as the installed client knows them."""
    session = boto3.Session()
    return [name for each in session.get_available_partitions() for name in session.get_available_regions("ec2", each)]


STARTER = AwsStarter()
