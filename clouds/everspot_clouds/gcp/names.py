"""Names of a cluster's machines. IAM conditions know a machine by how its name begins, since they see no labels: the
standing agents' begin with `CLUSTER-agent-`, and launched ones' with what `rules.name_prefix` says."""

import hashlib
import re

from everspot_core.capacity.market import Market
from everspot_core.jobs.records import Role
from everspot_core.validation.problems import Problems, shown

from everspot_clouds.gcp.rules import name_prefix

LONGEST = 63
"""Most characters of a resource's name (Compute Engine documentation, "Naming resources")."""
ACCOUNT_AT_MOST = 30
"""Most characters of a service account's id (IAM API, CreateServiceAccountRequest)."""
RESOURCE = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?\Z")
"""The form of a resource's name."""
BUCKET = re.compile(r"^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]\Z")
"""Name of a bucket (Cloud Storage documentation, "About Cloud Storage buckets"; names with dots have up to 222
characters)."""
ZONE = re.compile(r"^[a-z]+-[a-z]+\d+-[a-z]\Z")
"""Name of a zone: europe-west4-a."""


_DIGEST = 7
_WORDS = ("agent", "e", "scheduler")
"""The words that follow the cluster's name in a machine's name."""


def agents(cluster: str) -> tuple[str, ...]:
    """Return how the names of all agents' machines begin, standing and launched ones."""
    return f"{cluster}-{Role.AGENT.value}-", name_prefix(cluster)


def standing(cluster: str, market: Market) -> str:
    """Return the base of the names of a standing group's machines; a dash and four random characters follow it."""
    return f"{cluster}-{Role.AGENT.value}-{market.value}"


def scheduler(cluster: str) -> str:
    """Return the same for the scheduler's machine."""
    return f"{cluster}-{Role.SCHEDULER.value}"


def account_id(cluster: str, role: Role) -> str:
    """Return the id of a role's service account. A cluster's name that is too long is cut, and told apart by a
    digest."""
    whole = f"{cluster}-{role.value}"
    if len(whole) <= ACCOUNT_AT_MOST:
        return whole
    digest = hashlib.sha256(cluster.encode()).hexdigest()[:_DIGEST]
    room = ACCOUNT_AT_MOST - len(role.value) - _DIGEST - 2
    return f"{cluster[:room].rstrip('-')}-{digest}-{role.value}"


def name_problems(problems: Problems, cluster: str) -> None:
    """Add a problem if another cluster's machines could be taken for this one's by their names."""
    reserved = [token for token in _WORDS if token in cluster.split("-")[1:]]
    problems.need(
        not reserved,
        "cluster",
        f"{shown(cluster)} has the word {' and '.join(reserved)}, by which the names of machines tell what they are",
    )
