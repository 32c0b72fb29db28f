"""The bucket that holds the state of stacks, and its key."""

import re

import pulumi
from pulumi_gcp import kms, storage

from everspot.gcp import preview_queries

BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")

ROTATION = f"{90 * 24 * 3600}s"
OLD_STATES_DAYS = 90
"""Days for which overwritten or deleted states can be restored."""

ABORT_UPLOAD_DAYS = 2


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
