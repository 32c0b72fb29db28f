"""How instances are launched."""

from collections.abc import Iterator, Mapping

from everspot_clouds.plain_credentials import kinds_in
from everspot_core.validation.problems import Problem

from everspot_policy.gcp.kinds import FROM_TEMPLATE, INSTANCE, LAUNCHES, TEMPLATES
from everspot_policy.reading import denied, hidden, lacks, mapping, text, yes
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

PROJECT = "gcp:compute/projectMetadata:ProjectMetadata"
PROJECT_ITEM = "gcp:compute/projectMetadataItem:ProjectMetadataItem"
METADATA = (*LAUNCHES, FROM_TEMPLATE, PROJECT)


@rule(
    "gcp-shielded-vm",
    Level.MANDATORY,
    Severity.HIGH,
    title="Instances boot with a virtual TPM and integrity monitoring",
    remedy="Set shieldedInstanceConfig with enableVtpm and enableIntegrityMonitoring, and enableSecureBoot if the "
    "image's drivers are signed.",
    types=LAUNCHES,
    checkov=("CKV_GCP_39",),
)
def shielded_vm(subject: Subject) -> Iterator[Problem]:
    """Find launches without a Shielded VM configuration, or with a part of it switched off."""
    shielded = subject.inputs.get("shieldedInstanceConfig")
    if hidden(shielded):
        return
    if not isinstance(shielded, Mapping):
        yield Problem("shieldedInstanceConfig", "is not given")
    for name in ("enableVtpm", "enableIntegrityMonitoring"):
        if denied(mapping(shielded).get(name)):
            yield Problem(f"shieldedInstanceConfig.{name}", "has to be true")


@rule(
    "gcp-os-login",
    Level.MANDATORY,
    Severity.HIGH,
    title="People log in with OS Login, not with SSH keys in the metadata",
    remedy='Set the metadata enable-oslogin to "TRUE", on the instance or its template.',
    types=METADATA,
    checkov=("CKV_GCP_33", "CKV_GCP_34"),
)
def os_login(subject: Subject) -> Iterator[Problem]:
    """Find metadata that does not switch OS Login on, or has keys of its own."""
    metadata = subject.inputs.get("metadata")
    if hidden(metadata):
        return
    entries = mapping(metadata)
    if (subject.type in LAUNCHES and lacks(entries.get("enable-oslogin"))) or denied(entries.get("enable-oslogin")):
        yield Problem('metadata["enable-oslogin"]', 'has to be "TRUE"')
    for name in ("ssh-keys", "sshKeys"):
        if entries.get(name):
            yield Problem(f'metadata["{name}"]', "has to be left out")


@rule(
    "gcp-no-serial-port",
    Level.MANDATORY,
    Severity.HIGH,
    title="The interactive serial port, which bypasses the firewall, is off",
    remedy="Leave the metadata serial-port-enable out, or set it to FALSE.",
    types=METADATA,
    checkov=("CKV_GCP_35",),
)
def no_serial_port(subject: Subject) -> Iterator[Problem]:
    """Find serial ports that are open; any number but 0 opens them as well."""
    value = mapping(subject.inputs.get("metadata")).get("serial-port-enable")
    if yes(value) or (isinstance(value, int | float) and value != 0):
        yield Problem('metadata["serial-port-enable"]', "has to be FALSE")


@rule(
    "gcp-no-secrets-in-metadata",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="Metadata and start-up scripts contain no credentials, since every program on the instance can read them",
    remedy="Give the instance its own service account, and read secrets from Secret Manager.",
    types=(*METADATA, PROJECT_ITEM),
)
def no_secrets_in_metadata(subject: Subject) -> Iterator[Problem]:
    """Find values with something in them that looks like a credential."""
    inputs = subject.inputs
    values = {f'metadata["{name}"]': value for name, value in mapping(inputs.get("metadata")).items()}
    values["metadataStartupScript"] = inputs.get("metadataStartupScript")
    values["value"] = inputs.get("value") if subject.type == PROJECT_ITEM else None
    for path, value in values.items():
        for kind in kinds_in(text(value)):
            yield Problem(path, f"seems to hold {kind}")


@rule(
    "gcp-no-ip-forwarding",
    Level.MANDATORY,
    Severity.MEDIUM,
    title="Instances do not forward packets of others",
    remedy="Leave canIpForward out. For a router, note an exception.",
    types=LAUNCHES,
    checkov=("CKV_GCP_36",),
)
def no_ip_forwarding(subject: Subject) -> Iterator[Problem]:
    """Yield instances that may forward."""
    if yes(subject.inputs.get("canIpForward")):
        yield Problem("canIpForward", "has to be false")


@rule(
    "gcp-spot-not-preemptible",
    Level.ADVISORY,
    Severity.MEDIUM,
    title="Spot is requested as SPOT, since preemptible instances end after a day",
    remedy="Set scheduling.provisioningModel to SPOT beside preemptible.",
    types=(INSTANCE, *TEMPLATES),
)
def spot_not_preemptible(subject: Subject) -> Iterator[Problem]:
    """Yield the older kind."""
    scheduling = mapping(subject.inputs.get("scheduling"))
    model = scheduling.get("provisioningModel")
    if yes(scheduling.get("preemptible")) and not hidden(model) and model != "SPOT":
        yield Problem("scheduling.provisioningModel", "has to be SPOT")


RULES: tuple[Rule, ...] = (
    shielded_vm, os_login, no_serial_port, no_secrets_in_metadata, no_ip_forwarding, spot_not_preemptible,
)  # fmt: skip
