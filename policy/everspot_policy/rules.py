"""Every rule about single resources, by its id."""

from everspot_policy import credentials
from everspot_policy.aws import compute as aws_compute
from everspot_policy.aws import escalation as aws_escalation
from everspot_policy.aws import identity as aws_identity
from everspot_policy.aws import keys as aws_keys
from everspot_policy.aws import lifetime as aws_lifetime
from everspot_policy.aws import messaging as aws_messaging
from everspot_policy.aws import network as aws_network
from everspot_policy.aws import purchases as aws_purchases
from everspot_policy.aws import storage as aws_storage
from everspot_policy.aws import tags as aws_tags
from everspot_policy.gcp import compute as gcp_compute
from everspot_policy.gcp import escalation as gcp_escalation
from everspot_policy.gcp import identity as gcp_identity
from everspot_policy.gcp import keys as gcp_keys
from everspot_policy.gcp import lifetime as gcp_lifetime
from everspot_policy.gcp import network as gcp_network
from everspot_policy.gcp import storage as gcp_storage
from everspot_policy.gcp import tags as gcp_tags
from everspot_policy.kubernetes import network as kubernetes_network
from everspot_policy.kubernetes import nodes as kubernetes_nodes
from everspot_policy.kubernetes import pods as kubernetes_pods
from everspot_policy.kubernetes import rights as kubernetes_rights
from everspot_policy.rule import Rule

_AWS = (
    aws_network, aws_compute, aws_storage, aws_messaging, aws_identity, aws_escalation, aws_keys, aws_tags,
    aws_purchases, aws_lifetime,
)  # fmt: skip
_GCP = (gcp_network, gcp_compute, gcp_storage, gcp_identity, gcp_escalation, gcp_keys, gcp_tags, gcp_lifetime)
_KUBERNETES = (kubernetes_nodes, kubernetes_pods, kubernetes_rights, kubernetes_network)

RULES: dict[str, Rule] = {
    each.id: each for module in (*_AWS, *_GCP, *_KUBERNETES, credentials) for each in module.RULES
}
"""In the order of the documentation."""
