"""Cases for Google Cloud."""

import base64
import json

from cases import Cases
from everspot_core.cluster.declared import UNKNOWN

LABELS = {"project": "vision", "team": "ml", "environment": "dev"}
INSTANCE = "gcp:compute/instance:Instance"
TEMPLATE = "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate"
GLOBAL_TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"
GROUP = "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager"
FIREWALL = "gcp:compute/firewall:Firewall"
BUCKET = "gcp:storage/bucket:Bucket"
MEMBER = "gcp:projects/iAMMember:IAMMember"
BINDING = "gcp:projects/iAMBinding:IAMBinding"
POLICY = "gcp:projects/iAMPolicy:IAMPolicy"
PROVIDER = "gcp:iam/workloadIdentityPoolProvider:WorkloadIdentityPoolProvider"
SOUND = {
    "machineType": "e2-standard-2",
    "region": "europe-west4",
    "disks": [{"sourceImage": "projects/p/global/images/i", "boot": True, "labels": LABELS}],
    "networkInterfaces": [{"network": "n"}],
    "shieldedInstanceConfig": {"enableVtpm": True, "enableIntegrityMonitoring": True},
    "metadata": {"enable-oslogin": "TRUE"},
    "labels": LABELS,
}
SCRIPT = "#!/bin/sh\nexport HF_TOKEN=hf_" + "aB3dE6gH9j" * 3 + "kLmN"

c = Cases()

c.select("gcp-no-public-address", TEMPLATE)
c.good(
    SOUND,
    {"networkInterfaces": UNKNOWN},
    {"networkInterfaces": [{"accessConfigs": UNKNOWN}]},
    {"networkInterfaces": [{"accessConfigs": []}]},
)
c.bad(
    {**SOUND, "networkInterfaces": [{"network": "n", "accessConfigs": [{"networkTier": "PREMIUM"}]}]},
    "networkInterfaces[0].accessConfigs",
)
c.bad({"networkInterfaces": [{"accessConfigs": [{}]}]}, "networkInterfaces[0].accessConfigs", engine=False)
c.select("gcp-no-public-address", INSTANCE)
c.bad(
    {"networkInterfaces": [{}, {"ipv6AccessConfigs": [{"networkTier": "PREMIUM"}]}]},
    "networkInterfaces[1].ipv6AccessConfigs",
    engine=False,
)

c.select("gcp-no-public-address", "gcp:compute/subnetwork:Subnetwork")
c.good({}, {"ipv6AccessType": "INTERNAL"}, {"ipv6AccessType": UNKNOWN})
c.bad({"stackType": "IPV4_IPV6", "ipv6AccessType": "EXTERNAL"}, "ipv6AccessType", engine=False)

TCP = [{"protocol": "tcp", "ports": ["22"]}]
c.select("gcp-nothing-open", FIREWALL)
c.good(
    {"allows": TCP, "sourceRanges": ["35.235.240.0/20"]},
    {"allows": TCP, "sourceTags": ["a"]},
    {"allows": TCP, "sourceRanges": UNKNOWN},
)
c.good({"denies": TCP, "sourceRanges": ["0.0.0.0/0"]}, {"allows": TCP, "sourceRanges": ["0.0.0.0/0"], "disabled": True})
c.good({"allows": TCP, "direction": "EGRESS", "destinationRanges": ["0.0.0.0/0"]})
c.bad({"network": "n", "allows": TCP, "sourceRanges": ["10.0.0.0/8", "0.0.0.0/0"]}, "sourceRanges")
c.select("gcp-nothing-open", "gcp:compute/networkFirewallPolicyRule:NetworkFirewallPolicyRule")
RULE = {"action": "allow", "direction": "INGRESS", "firewallPolicy": "p", "priority": 1}
MATCH = {"layer4Configs": [{"ipProtocol": "tcp"}]}
c.good(
    {**RULE, "match": {**MATCH, "srcIpRanges": ["10.0.0.0/8"]}},
    {**RULE, "action": "deny", "match": {"srcIpRanges": ["0.0.0.0/0"]}},
)
c.bad({**RULE, "match": {**MATCH, "srcIpRanges": ["0.0.0.0/0"]}}, "match.srcIpRanges", engine=False)
c.good(
    {**RULE, "match": {**MATCH, "srcNetworkScope": "INTERNET", "srcIpRanges": ["203.0.113.0/24"]}},
    {**RULE, "match": {**MATCH, "srcNetworkScope": "NON_INTERNET"}},
    {**RULE, "match": {**MATCH, "srcNetworkScope": "NON_INTERNET", "srcIpRanges": ["0.0.0.0/0"]}},
    {**RULE, "match": {**MATCH, "srcNetworkContext": UNKNOWN}},
    {**RULE, "action": "deny", "match": {**MATCH, "srcNetworkScope": "INTERNET"}},
    {**RULE, "direction": "EGRESS", "match": {**MATCH, "srcNetworkScope": "INTERNET"}},
    engine=False,
)
for scope in ("srcNetworkScope", "srcNetworkType", "srcNetworkContext"):
    c.bad({**RULE, "match": {**MATCH, scope: "INTERNET"}}, f"match.{scope}", engine=False)
c.select("gcp-nothing-open", "gcp:compute/firewallPolicyRule:FirewallPolicyRule")
c.bad({**RULE, "match": {**MATCH, "srcNetworkContext": "INTERNET"}}, "match.srcNetworkContext", engine=False)
c.select("gcp-nothing-open", "gcp:compute/regionNetworkFirewallPolicyWithRules:RegionNetworkFirewallPolicyWithRules")
c.good({"rules": [{**RULE, "match": {"srcIpRanges": ["10.0.0.0/8"]}}]}, {"rules": UNKNOWN})
OUT, EVERYBODY = {**RULE, "direction": "EGRESS"}, {"srcIpRanges": ["0.0.0.0/0"]}
c.bad({"rules": [OUT, {**RULE, "match": EVERYBODY}]}, "rules[1].match.srcIpRanges", engine=False)
c.bad({"rules": [{**RULE, "match": {"srcNetworkScope": "INTERNET"}}]}, "rules[0].match.srcNetworkScope", engine=False)

c.select("gcp-nothing-open", "gcp:container/cluster:Cluster")
CONTROL_PLANE = "masterAuthorizedNetworksConfig"
c.good({}, {CONTROL_PLANE: {"cidrBlocks": [{"cidrBlock": "203.0.113.0/24"}]}}, {CONTROL_PLANE: UNKNOWN})
c.bad(
    {CONTROL_PLANE: {"cidrBlocks": [{"cidrBlock": "0.0.0.0/0"}]}},
    f"{CONTROL_PLANE}.cidrBlocks[0].cidrBlock",
    engine=False,
)
c.select("gcp-nothing-open", "gcp:sql/databaseInstance:DatabaseInstance")
c.good({}, {"settings": {"ipConfiguration": {"authorizedNetworks": [{"value": "203.0.113.0/24"}]}}})
c.bad(
    {"settings": {"ipConfiguration": {"authorizedNetworks": [{"value": "10.0.0.0/8"}, {"value": "0.0.0.0/0"}]}}},
    "settings.ipConfiguration.authorizedNetworks[1].value",
    engine=False,
)

c.select("gcp-no-nat", "gcp:compute/routerNat:RouterNat")
c.bad(
    {
        "router": "r",
        "region": "europe-west4",
        "natIpAllocateOption": "AUTO_ONLY",
        "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
    },
    "",
)
c.select("gcp-no-nat", "gcp:compute/router:Router").good({"network": "n"})

c.select("gcp-own-subnetworks", "gcp:compute/network:Network").good(
    {"autoCreateSubnetworks": False}, {"autoCreateSubnetworks": UNKNOWN}
)
c.bad({}, "autoCreateSubnetworks")

c.select("gcp-shielded-vm", TEMPLATE).good(
    SOUND, {"shieldedInstanceConfig": UNKNOWN}, {"shieldedInstanceConfig": {"enableVtpm": UNKNOWN}}
)
c.bad(
    {**SOUND, "shieldedInstanceConfig": {"enableVtpm": False, "enableIntegrityMonitoring": True}},
    "shieldedInstanceConfig.enableVtpm",
)
c.select("gcp-shielded-vm", INSTANCE).bad({}, "shieldedInstanceConfig", engine=False)

LOGIN = 'metadata["enable-oslogin"]'
c.select("gcp-os-login", TEMPLATE).good(SOUND, {"metadata": UNKNOWN}, {"metadata": {"enable-oslogin": UNKNOWN}})
c.bad(
    {**SOUND, "metadata": {"enable-oslogin": "FALSE", "ssh-keys": "me:ssh-ed25519 AAAA"}}, LOGIN, 'metadata["ssh-keys"]'
)
c.select("gcp-os-login", GLOBAL_TEMPLATE).bad({}, LOGIN, engine=False)
c.select("gcp-os-login", "gcp:compute/projectMetadata:ProjectMetadata").good({"metadata": {}})
c.bad({"metadata": {"enable-oslogin": "false"}}, LOGIN)

SERIAL = 'metadata["serial-port-enable"]'
c.select("gcp-no-serial-port", TEMPLATE).good(
    SOUND, {"metadata": {"serial-port-enable": "FALSE"}}, {"metadata": UNKNOWN}
)
c.bad({**SOUND, "metadata": {"enable-oslogin": "TRUE", "serial-port-enable": "TRUE"}}, SERIAL)
c.bad({"metadata": {"serial-port-enable": 1}}, SERIAL, engine=False)

c.select("gcp-no-secrets-in-metadata", TEMPLATE).good(SOUND, {"metadataStartupScript": UNKNOWN})
c.bad({**SOUND, "metadataStartupScript": SCRIPT}, "metadataStartupScript")
c.bad({"metadata": {"startup-script": SCRIPT}}, 'metadata["startup-script"]', engine=False)

PACKED = base64.b64encode(SCRIPT.encode()).decode()
FILES = f"#cloud-config\nwrite_files:\n- {{path: /job, encoding: b64, content: {PACKED}}}\n"
c.bad({"metadata": {"user-data": FILES}}, 'metadata["user-data"]', engine=False)

c.select("gcp-no-ip-forwarding", TEMPLATE).good(SOUND, {"canIpForward": UNKNOWN})
c.bad({**SOUND, "canIpForward": True}, "canIpForward")

c.select("gcp-spot-not-preemptible", TEMPLATE)
c.good(
    SOUND,
    {"scheduling": {"preemptible": True, "provisioningModel": "SPOT"}},
    {"scheduling": {"preemptible": True, "provisioningModel": UNKNOWN}},
)
c.bad({**SOUND, "scheduling": {"preemptible": True, "automaticRestart": False}}, "scheduling.provisioningModel")

KEPT = {"location": "EU", "labels": LABELS, "uniformBucketLevelAccess": True, "publicAccessPrevention": "enforced"}
ABORT = {"condition": {"age": 2}, "action": {"type": "AbortIncompleteMultipartUpload"}}
KEPT["lifecycleRules"] = [ABORT]
c.select("gcp-bucket-uniform", BUCKET).good(KEPT, {"uniformBucketLevelAccess": UNKNOWN})
c.bad({**KEPT, "uniformBucketLevelAccess": False}, "uniformBucketLevelAccess")
c.select("gcp-bucket-not-public", BUCKET).good(KEPT, {"publicAccessPrevention": UNKNOWN})
c.bad({**KEPT, "publicAccessPrevention": "inherited"}, "publicAccessPrevention")
c.select("gcp-bucket-not-public", "gcp:storage/bucketAccessControl:BucketAccessControl").good(
    {"entity": "user-a@example.com"}
)
c.bad({"bucket": "b", "entity": "allUsers", "role": "READER"}, "entity")
c.select("gcp-bucket-not-public", "gcp:storage/bucketACL:BucketACL")
c.bad({"bucket": "b", "predefinedAcl": "publicRead"}, "predefinedAcl").bad(
    {"roleEntities": ["READER:allUsers"]}, "roleEntities", engine=False
)
c.select("gcp-bucket-versioned", BUCKET).good(
    KEPT, {"softDeletePolicy": {"retentionDurationSeconds": 0}, "versioning": {"enabled": True}}
)
c.bad({**KEPT, "softDeletePolicy": {"retentionDurationSeconds": 0}}, "versioning.enabled")
c.select("gcp-bucket-uploads-aborted", BUCKET).good(
    KEPT, {"lifecycleRules": UNKNOWN}, {"lifecycleRules": [{"action": {"type": UNKNOWN}}]}
)
c.bad({**KEPT, "lifecycleRules": [{"condition": {"age": 9}, "action": {"type": "Delete"}}]}, "lifecycleRules")

c.select("gcp-own-service-account", TEMPLATE)
ALL = ["https://www.googleapis.com/auth/cloud-platform"]
c.good(
    SOUND,
    {"serviceAccount": {"email": "train@p.iam.gserviceaccount.com", "scopes": ALL}},
    {"serviceAccount": UNKNOWN},
    {"serviceAccount": {"email": UNKNOWN}},
)
c.bad({**SOUND, "serviceAccount": {"scopes": ALL}}, "serviceAccount.email")
c.bad({"serviceAccount": {"email": "123-compute@developer.gserviceaccount.com"}}, "serviceAccount.email", engine=False)

ME = "user:me@example.com"
c.select("gcp-no-basic-roles", MEMBER).good(
    {"project": "p", "role": "roles/storage.objectViewer", "member": ME}, {"role": UNKNOWN}
)
c.bad({"project": "p", "role": "roles/editor", "member": ME}, "role")
c.select("gcp-no-basic-roles", BINDING).bad({"project": "p", "role": "roles/owner", "members": [ME]}, "role")
c.select("gcp-no-basic-roles", POLICY).good({"policyData": UNKNOWN}, {"policyData": "no document"})
OWNER = json.dumps(
    {"bindings": [{"role": "roles/run.viewer", "members": [ME]}, {"role": "roles/owner", "members": [ME]}]}
)
c.bad({"project": "p", "policyData": OWNER}, "policyData.bindings[1]")
c.select("gcp-no-basic-roles", "gcp:folder/iAMMember:IAMMember").bad(
    {"folder": "f", "role": "roles/viewer", "member": ME}, "role", engine=False
)

c.select("gcp-not-for-everybody", "gcp:storage/bucketIAMMember:BucketIAMMember").good(
    {"role": "roles/storage.objectViewer", "member": ME}
)
c.bad({"bucket": "b", "role": "roles/storage.objectViewer", "member": "allUsers"}, "role")
c.select("gcp-not-for-everybody", "gcp:pubsub/topicIAMBinding:TopicIAMBinding").good(
    {"members": UNKNOWN}, {"members": [UNKNOWN]}
)
c.bad({"topic": "t", "role": "roles/pubsub.publisher", "members": [ME, "allAuthenticatedUsers"]}, "role")

c.select("gcp-not-for-everybody", "gcp:bigquery/datasetAccess:DatasetAccess")
c.good({"role": "READER", "userByEmail": "a@example.com"}, {"specialGroup": "projectReaders"})
c.bad({"role": "READER", "specialGroup": "allAuthenticatedUsers"}, "specialGroup", engine=False)
c.bad({"role": "READER", "iamMember": "allUsers"}, "iamMember", engine=False)
c.select("gcp-not-for-everybody", "gcp:bigquery/dataset:Dataset").bad(
    {"accesses": [{"specialGroup": "projectOwners"}, {"iamMember": "allUsers"}]}, "accesses[1].iamMember", engine=False
)

c.select("gcp-impersonation-named", MEMBER).good({"role": "roles/iam.serviceAccountViewer", "member": ME})
c.bad({"project": "p", "role": "roles/iam.serviceAccountTokenCreator", "member": ME}, "role")
c.select("gcp-impersonation-named", "gcp:serviceaccount/iAMMember:IAMMember").good(
    {"role": "roles/iam.serviceAccountUser", "member": ME}
)

c.select("gcp-no-escalation", MEMBER).good({"role": "roles/iam.securityReviewer", "member": ME}, {"role": UNKNOWN})
HAS_ONLY = "api.getAttribute('iam.googleapis.com/modifiedGrantsByRole', []).hasOnly(['roles/pubsub.publisher'])"
c.good({"role": "roles/resourcemanager.projectIamAdmin", "condition": {"title": "only", "expression": HAS_ONLY}})
c.bad({"project": "p", "role": "roles/iam.serviceAccountKeyAdmin", "member": ME}, "role")
WHEN = {"title": "later", "expression": "request.time > timestamp('2026-01-01T00:00:00Z')"}
c.bad({"role": "roles/resourcemanager.projectIamAdmin", "member": ME, "condition": WHEN}, "role", engine=False)
c.select("gcp-no-escalation", "gcp:serviceaccount/iAMMember:IAMMember").good(
    {"role": "roles/iam.serviceAccountAdmin", "member": ME}
)
c.select("gcp-no-escalation", "gcp:projects/iAMCustomRole:IAMCustomRole")
c.good({"permissions": ["compute.instances.list", "iam.serviceAccounts.actAs"]}, {"permissions": UNKNOWN})
LENT = {"roleId": "lender", "title": "t", "permissions": ["compute.instances.list", "iam.serviceAccountKeys.create"]}
c.bad(LENT, "permissions")

ISSUER = {
    "oidc": {"issuerUri": "https://token.actions.githubusercontent.com"},
    "workloadIdentityPoolId": "jobs-pool",
    "workloadIdentityPoolProviderId": "github-1",
}
c.select("gcp-trust-named", PROVIDER)
GITLAB = {"oidc": {"issuerUri": "https://gitlab.com/"}}
c.good(
    {**GITLAB, "attributeCondition": UNKNOWN},
    {**GITLAB, "attributeCondition": "assertion.namespace_id == '4711'"},
    {**GITLAB, "attributeCondition": "assertion.sub.startsWith('project_path:acme/') && assertion.ref == 'main'"},
    {**GITLAB, "attributeCondition": 'attribute.project_path in ["acme/a", "acme/b"]'},
    {"oidc": {"issuerUri": "https://oidc.circleci.com/org/1a2b"}},
)
for condition in (
    "",
    "assertion.aud == 'acme'",
    "assertion.ref == 'main'",
    "assertion.sub.startsWith('project_path:')",
    "assertion.sub.startsWith('project_path:acme')",
    "assertion.namespace_id != '4711'",
    "assertion.namespace_id == '4711' || assertion.ref == 'main'",
    "!(assertion.namespace_id == '4711')",
):
    c.bad({**GITLAB, "attributeCondition": condition}, "attributeCondition", engine=False)
c.bad(GITLAB, "attributeCondition", engine=False)
c.good(
    {"oidc": {"issuerUri": "https://issuer.example.com"}},
    {**ISSUER, "attributeCondition": "assertion.repository_id == '4711'"},
    {**ISSUER, "attributeCondition": UNKNOWN},
    {**ISSUER, "attributeCondition": "assertion.repository in ['acme/a', 'acme/b']"},
    {**ISSUER, "attributeCondition": "assertion.repository == 'acme/a' || assertion.repository == 'acme/b'"},
    {**ISSUER, "attributeCondition": "assertion.sub.startsWith('repo:acme/a:')"},
    {**ISSUER, "attributeCondition": "(assertion.repository == 'acme/a' && assertion.ref == 'refs/heads/main')"},
    {**ISSUER, "attributeCondition": "attribute.repository_id in ['4711', '4712']"},
    {**ISSUER, "attributeCondition": "assertion.repository == 'acme/a' && !(assertion.ref != 'refs/heads/main')"},
)
for condition in (
    "true || assertion.repository == 'acme/a'",
    "assertion.repository == assertion.repository",
    "!assertion.repository.startsWith('acme/')",
    "assertion.sub.startsWith('')",
    "assertion.sub.startsWith('repo:')",
    "assertion.sub.startsWith('repo:acme/')",
    "!(assertion.repository == 'acme/a')",
    "! (assertion.repository == 'acme/a')",
    "!(true && assertion.repository == 'acme/a')",
    "!(true && (assertion.repository == 'acme/a'))",
    "assertion.repository.startsWith('acme/a')",
    "google.subject in ['re']",
    "assertion.repository == 'acme/a' ? true : true",
    "(assertion.repository == 'acme/a') == false",
    "assertion.repository != 'acme/a' && 'x' == 'x'",
    "assertion.repository_id == '4711' || assertion.ref == 'refs/heads/main'",
):
    c.bad({**ISSUER, "attributeCondition": condition}, "attributeCondition", engine=False)
c.bad(ISSUER, "attributeCondition")
c.bad({**ISSUER, "attributeCondition": "assertion.repository_owner == 'acme'"}, "attributeCondition", engine=False)

c.select("gcp-no-account-keys", "gcp:serviceaccount/key:Key").bad(
    {"serviceAccountId": "train@p.iam.gserviceaccount.com"}, ""
)
c.select("gcp-no-account-keys", "gcp:serviceaccount/account:Account").good({"accountId": "train"})

c.select("gcp-key-rotates", "gcp:kms/cryptoKey:CryptoKey")
c.good({"rotationPeriod": "7776000s"}, {"rotationPeriod": UNKNOWN}, {"purpose": "ASYMMETRIC_SIGN"})
RING = {"keyRing": "projects/p/locations/global/keyRings/r", "labels": LABELS}
c.bad(RING, "rotationPeriod").bad({"rotationPeriod": "94608000s"}, "rotationPeriod", engine=False)

c.select("gcp-logs-kept", "gcp:logging/projectBucketConfig:ProjectBucketConfig").good(
    {"retentionDays": 30}, {"retentionDays": UNKNOWN}
)
c.bad({"project": "p", "location": "global", "bucketId": "_Default"}, "retentionDays")

c.select("gcp-labels", BUCKET).good(
    KEPT, {"labels": UNKNOWN}, {"labels": {**LABELS, "team": UNKNOWN}}, {"effectiveLabels": LABELS}
)
c.bad({**KEPT, "labels": {"team": "ml"}}, "labels")
c.select("gcp-labels", TEMPLATE).good(SOUND, {**SOUND, "disks": [{"source": "d"}]})
c.bad({**SOUND, "disks": [{"sourceImage": "projects/p/global/images/i", "boot": True}]}, "disks[0].labels")

c.select("gcp-production-protected", BUCKET)
PRODUCTION = {**KEPT, "labels": {**LABELS, "environment": "gcp-prod"}}
c.good(PRODUCTION, KEPT).good(PRODUCTION, protected=True).good(KEPT, {}, protected=False)
c.bad(PRODUCTION, "", protected=False)
c.select("gcp-production-protected", GROUP)
c.good({"targetSize": 1}, environment="prod", protected=False).bad(
    {"targetSize": 2}, "", environment="prod", protected=False, engine=False
)

CASES = c.listed
