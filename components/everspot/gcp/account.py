"""The settings that a project has once, for all its clusters."""

from typing import NotRequired, TypedDict

import pulumi
from everspot_clouds.gcp.network import resource_problem
from everspot_core.validation.bounds import check_values
from everspot_core.validation.problems import Problems
from pulumi_gcp import kms, projects

from everspot import common
from everspot.gcp import preview_queries, tagging
from everspot.gcp.store import KEY_FORM
from everspot.parts import outputs

SERVICES = (
    *("cloudresourcemanager", "compute", "iam", "iamcredentials", "logging", "monitoring", "oslogin", "pubsub"),
    *("secretmanager", "storage", "sts"),
)
"""Google's services that clusters use. A service that is not switched on in a project refuses every call."""


class GcpAccountSetupArgs(TypedDict):
    """Inputs of `GcpAccountSetup`."""

    tags: dict[str, str]
    """Tags of the stack; Project, Team and Environment are mandatory. The services and grants themselves have no
    labels."""
    volume_kms_keys: NotRequired[list[str]]
    """Customer-managed keys that encrypt boot disks, projects/…/cryptoKeys/NAME. Compute Engine's service agent gets
    the permission to use them. Default: none."""


class GcpAccountSetup(pulumi.ComponentResource):
    """Google's services that clusters use, switched on once per project, and Compute Engine's use of volumes' keys.

    Put this component into a stack of its own, apart from the clusters. `pulumi destroy` switches nothing off, because
    others may use it.
    """

    services: pulumi.Output[list[str]]
    """The services that are on."""

    def __init__(self, name: str, args: GcpAccountSetupArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("GcpAccountSetup"), name, {}, opts)
        problems = Problems()
        account_problems(problems, args)
        common.raise_bad(problems, f"GcpAccountSetup {name}")
        on = [self._service(f"{name}-{service}", f"{service}.googleapis.com") for service in SERVICES]
        self.services = pulumi.Output.all(*[service.service for service in on]).apply(list)
        for suffix, former_suffix, key in common.name_by_target("volumes", args.get("volume_kms_keys", [])):
            self._grant(f"{name}-{suffix}", key, on, former_name=f"{name}-{former_suffix}")
        self.register_outputs(outputs(self))

    def _service(self, name: str, service: str) -> "projects.Service":
        own = pulumi.ResourceOptions(parent=self, retain_on_delete=True)
        return projects.Service(name, service=service, disable_on_destroy=False, opts=own)

    def _grant(self, name: str, key: str, after: "list[projects.Service]", *, former_name: str) -> None:
        """Let Compute Engine's service agent use a key, because the agent encrypts disks (Compute Engine documentation,
        "Protect resources by using Cloud KMS keys")."""
        message = "volumeKmsKeys: the project cannot be read (resourcemanager.projects.get)."
        project = preview_queries.invoke(self, "organizations/getProject:getProject", {}, failed=message)
        kms.CryptoKeyIAMMember(
            name,
            crypto_key_id=key,
            role="roles/cloudkms.cryptoKeyEncrypterDecrypter",
            member=project.apply(
                lambda found: f"serviceAccount:service-{found['number']}@compute-system.iam.gserviceaccount.com"
            ),
            opts=pulumi.ResourceOptions.merge(
                pulumi.ResourceOptions(parent=self, depends_on=list(after)), common.former_name(former_name)
            ),
        )


def account_problems(problems: Problems, args: GcpAccountSetupArgs) -> None:
    """Add a problem for each mistake in the inputs of a project's set-up."""
    tagging.check_tags(problems, args["tags"])
    for index, key in enumerate(args.get("volume_kms_keys", [])):
        reason = resource_problem(key, KEY_FORM)
        problems.need(reason is None, f"volumeKmsKeys[{index}]", reason or "")
    check_values(problems, args)
