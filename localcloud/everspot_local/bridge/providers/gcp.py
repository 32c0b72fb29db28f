"""Google Cloud: what pulumi-gcp and its upstream provider call differently, and what is odd about them.

pulumi-gcp wraps the beta provider, and here stands the other one: what only beta has is what the SDK has ahead.
"""

from __future__ import annotations

from everspot_local.bridge.table import Naming, ProviderTable

TEMPLATES = ("google_compute_instance_template", "google_compute_region_instance_template")
AHEAD_IN_TEMPLATES = {
    "": {"enableDisplay", "partnerMetadata"},
    "network_interface": {"aliasIpv6Ranges", "enableVpcScopedDns", "serviceClassId"},
    "scheduling": {"gracefulShutdown", "maintenanceInterval", "skipGuestOsShutdown"},
}
OF_COMPUTE = Naming(longest=63, lower=True)

TABLE = ProviderTable(
    package="gcp",
    prefix="google",
    sdk="pulumi_gcp",
    binary="terraform-provider-google",
    plugin="pulumi-resource-gcp",
    types={"gcp:serviceaccount/account:Account": "google_service_account"},
    folders={"projects": "project", "secretmanager": "secret_manager", "serviceaccount": "service_account"},
    everywhere={
        "terraform_labels": "pulumiLabels",
        "add_terraform_attribution_label": "addPulumiAttributionLabel",
        "terraform_attribution_label_addition_strategy": "pulumiAttributionLabelAdditionStrategy",
    },
    sdk_ahead={
        **{(template, part): set(names) for template in TEMPLATES for part, names in AHEAD_IN_TEMPLATES.items()},
        ("google_compute_region_instance_group_manager", ""): {"params"},
        ("google_compute_region_instance_group_manager", "instance_flexibility_policy.instance_selections"): {
            "disks",
            "minCpuPlatform",
        },
        ("google_compute_region_instance_group_manager", "update_policy"): {"minReadySec"},
        ("google_compute_subnetwork", "secondary_ip_range"): {"ipCollection", "ipVersion"},
        ("google_kms_crypto_key", ""): {"keyAccessJustificationsPolicy"},
        ("google_project_service", ""): {"checkIfServiceHasUsageOnDestroy"},
        ("google_secret_manager_secret", ""): {"secretType"},
    },
    bare_folders=frozenset({"organizations"}),  # `google_project`, not `google_organizations_project`
    open_config=frozenset({""}),  # endpoints of services that only the beta provider has
    own_settings=frozenset({"disableGlobalProjectWarning", "skipRegionValidation"}),
    replacing=frozenset({"project"}),
    naming={
        "google_compute_network": OF_COMPUTE,
        "google_compute_subnetwork": OF_COMPUTE,
        "google_compute_router": OF_COMPUTE,
        "google_compute_router_nat": OF_COMPUTE,
        "google_project_iam_custom_role": Naming("roleId"),
        "google_service_account": Naming("accountId", 30),
        "google_storage_bucket": Naming(longest=222),
    },
)
