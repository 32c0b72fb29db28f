"""The setup of a new project for an existing EKS cluster that has Karpenter.

The account's part is that of AWS. The settings name what Karpenter's own guide makes ("Getting Started with
Karpenter"): the role `KarpenterNodeRole-CLUSTER`, and subnets and security groups by the tag `karpenter.sh/discovery`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from everspot_core.validation.problems import Problems, shown

from everspot_clouds.aws.project_setup import (
    ACCOUNT_SETTINGS,
    BOOTSTRAP_SETTINGS,
    DEV_TYPES,
    PROD_TYPES,
    ZONES,
    AwsStarter,
    list_zones,
)
from everspot_clouds.aws.rules import BOOTSTRAP, dns_suffix, partition
from everspot_clouds.base.project_setup import ProjectAnswers, SetupStep, filled, list_offered
from everspot_clouds.kubernetes.rules import DECLARED, EKS_NAME, READERS, READING_ROLES

_PLACE = re.compile(rf"(\d{{12}})/({EKS_NAME.pattern})")
UNBUILT = "0" * 64
"""Stands for the image's digest until there is one."""
IMAGE_NAME = "everspot"
SETTINGS_FILES = ("stacks/Pulumi.dev.yaml", "stacks/Pulumi.prod.yaml")
"""The files that name the image."""
AMI_ALIAS = "al2023@v20260115"

CLUSTER_SETTINGS = """\
config:
  aws:region: $region
  aws:allowedAccountIds: ["$number"]
  everspot:cluster:
    cloud: kubernetes
    tags: {Project: everspot, Team: "$team"}
    permissionsBoundaryArn: $boundary
    eksCluster: $eks
    image: $image
"""
NODES = f"""\
    nodes:
      role: KarpenterNodeRole-$eks
      amiAlias: {AMI_ALIAS}
      subnetTags: {{karpenter.sh/discovery: $eks}}
      securityGroupTags: {{karpenter.sh/discovery: $eks}}
"""
DEV_SETTINGS = f"""\
# For trying things inside the EKS cluster: a store that goes with the stack, and one small pod, the scheduler, while no
# job waits.
{CLUSTER_SETTINGS}    retainStore: false
{NODES}    capacity:
      instanceTypes: [$dev]
      elastic: {{maxInstances: 4, maxUsdPerHour: 10, zones: [$zones]}}
"""
PROD_SETTINGS = f"""\
# `protect` refuses to delete or replace the buckets. A preview names the types that a zone does not offer.
{CLUSTER_SETTINGS}    protect: true
{NODES}    capacity:
      instanceTypes: [$prod]
      elastic: {{maxInstances: 8, maxUsdPerHour: 20, zones: [$zones]}}
"""
SETTINGS = {
    "bootstrap": BOOTSTRAP_SETTINGS.replace("    # Who is notified", "    eksClusters: [$eks]\n    # Who is notified"),
    "account": ACCOUNT_SETTINGS,
    "dev": DEV_SETTINGS,
    "prod": PROD_SETTINGS,
}

IMAGE = (
    "Builds the container image of agents and scheduler from Everspot's sources, pushes it to the registry, and writes "
    "its digest in place of the zeros."
)
ACCESS = (
    "Gives the roles of the repository's jobs access to the Kubernetes cluster: those that preview and look for drift "
    "may read the kinds of objects that a stack declares, which secrets are not, and the one that deploys may declare "
    "namespaces, rights and nodes. Whoever merges to main so has the whole Kubernetes cluster."
)


class KubernetesStarter(AwsStarter):
    """The part of an EKS cluster in a new project. An account is named with the cluster: ACCOUNT/CLUSTER."""

    account = "account and EKS cluster (123456789012/NAME)"
    extras, names_host = "components-aws,kubernetes", True
    cluster_component = "AwsKubernetesPool"

    def check(self, problems: Problems, answers: ProjectAnswers) -> None:
        """Add a problem for each mistake in account, EKS cluster, region and team."""
        match = _PLACE.fullmatch(answers.account)
        reason = f"{shown(answers.account)} has to be the account and the EKS cluster, such as 123456789012/research"
        problems.need(match is not None, "account", reason)
        super().check(problems, replace(answers, account=match[1] if match else "0" * 12))

    def settings(self, answers: ProjectAnswers) -> Mapping[str, str]:
        """Return the settings files' texts by stack."""
        account, eks = _split(answers)
        prod = list_offered(answers.region, PROD_TYPES)
        return filled(
            answers,
            SETTINGS,
            number=account,
            eks=eks,
            boundary=f"arn:{partition(answers.region)}:iam::{account}:policy/{BOOTSTRAP}-boundary",
            image=f"{_registry(account, answers.region)}/{IMAGE_NAME}@sha256:{UNBUILT}",
            dev=", ".join(list_offered(answers.region, DEV_TYPES)),
            prod=", ".join(prod),
            zones=", ".join(list_zones(answers.region, prod)[:ZONES]),
        )

    def steps(self, answers: ProjectAnswers) -> list[SetupStep]:
        """Return the steps until the first reviewed change."""
        account, eks = _split(answers)
        steps: list[SetupStep] = []
        for step in super().steps(replace(answers, account=account)):
            if step.title == "Image":
                steps += [_image(account, answers.region, SETTINGS_FILES), _access(account, eks, answers.region)]
            else:
                steps.append(step)
        return steps

    def module_steps(self, answers: ProjectAnswers, module: str) -> list[str]:
        """Return the step that builds the image: a preview cannot tell that there is none of this digest."""
        account, _ = _split(answers)
        step = _image(account, answers.region, (module,))
        return [f"{step.description} {' && '.join(step.commands)}"]


def _image(account: str, region: str, files: Sequence[str]) -> SetupStep:
    """Return the step that builds the image. `files`: those that name its digest."""
    registry = _registry(account, region)
    login = f"aws ecr get-login-password --region {region} | docker login --username AWS --password-stdin {registry}"
    describe = (
        f"aws ecr describe-images --region {region} --repository-name {IMAGE_NAME} --image-ids imageTag=first "
        "--query 'imageDetails[0].imageDigest' --output text"
    )
    commands = (
        f"aws ecr create-repository --region {region} --repository-name {IMAGE_NAME}",
        login,
        f'docker build --platform linux/amd64 -f "$EVERSPOT/training_image/bake/Dockerfile" '
        f'--build-arg COMMIT=$(git -C "$EVERSPOT" rev-parse HEAD) -t {registry}/{IMAGE_NAME}:first "$EVERSPOT"',
        f"docker push {registry}/{IMAGE_NAME}:first",
        f'sed -i.old "s/sha256:{UNBUILT}/$({describe})/" {" ".join(files)}',
        f"rm {' '.join(f'{file}.old' for file in files)}",
    )
    description = f"{IMAGE} EVERSPOT is a folder with these sources."
    return SetupStep("Image", description, commands, costs="The image: $0.10 a GB and month.")


def _access(account: str, eks: str, region: str) -> SetupStep:
    """Source: Amazon EKS User Guide, "Grant IAM users access to Kubernetes with EKS access entries".

    EKS's own policies do not fit readers: AmazonEKSAdminViewPolicy shows secrets, with which whoever opens a pull
    request would have the cluster, and AmazonEKSViewPolicy shows neither rights nor Karpenter's objects.
    """
    part = partition(region)
    entry = f"--region {region} --cluster-name {eks} --principal-arn arn:{part}:iam::{account}:role/{BOOTSTRAP}-"
    resources = ",".join(f"{resource}.{group}" if group else resource for resource, group in DECLARED)
    kubectl = f"kubectl --context {eks} create"
    deploying = f"arn:{part}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    commands = (
        f"aws eks update-kubeconfig --region {region} --name {eks} --alias {eks}",
        f"{kubectl} clusterrole {READERS} --verb=get,list,watch --resource={resources}",
        f"{kubectl} clusterrolebinding {READERS} --clusterrole={READERS} --group={READERS}",
        *(f"aws eks create-access-entry {entry}{name} --kubernetes-groups {READERS}" for name in READING_ROLES),
        f"aws eks create-access-entry {entry}deploy",
        f"aws eks associate-access-policy {entry}deploy --policy-arn {deploying} --access-scope type=cluster",
    )
    return SetupStep("Access to the Kubernetes cluster", ACCESS, commands)


def _split(answers: ProjectAnswers) -> tuple[str, str]:
    """Return the account's number and the EKS cluster's name."""
    account, _, eks = answers.account.partition("/")
    return account, eks


def _registry(account: str, region: str) -> str:
    return f"{account}.dkr.ecr.{region}.{dns_suffix(partition(region))}"


STARTER = KubernetesStarter()
