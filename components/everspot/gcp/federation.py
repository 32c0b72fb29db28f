"""The permissions of other clusters' schedulers in a cluster on Google Cloud, and of its own scheduler at its peers.

A peer's scheduler on Google Cloud keeps its identity. A scheduler on AWS becomes a service account that is made for it
alone, by Workload Identity Federation: its role is the only one that the pool's provider takes, and the only one that
may use the service account (IAM documentation, "Configure Workload Identity Federation with AWS").
"""

import functools
from dataclasses import dataclass

import pulumi
from everspot_clouds.federation_names import pool, pool_provider, visitor_name
from everspot_core.jobs.visit_records import visit_prefix
from pulumi_gcp import iam, serviceaccount

from everspot.federation import (
    ARCHIVE,
    AWS,
    CARRIED_READS,
    NAMED,
    PUBLISHED,
    SHARED,
    VISIT_READS,
    VISIT_WRITES,
    PeerArgs,
    of_visits,
    parse_role,
)
from everspot.gcp import policies
from everspot.gcp.args import GcpTrainingClusterArgs
from everspot.gcp.granting import Granting
from everspot.gcp.identity import GcpIdentity, on_prefixes
from everspot.gcp.store import GcpStore

USER = "roles/iam.workloadIdentityUser"
HOME_WRITES = ("heads/", "visits/")
"""Further prefixes of the control bucket that the scheduler of a federation writes."""

WAY_OUT = (
    "GcpTrainingCluster {name}: federation leads to another cloud, and network is an existing one: Cloud NAT, or "
    "another way out to port 443, has to serve its subnetwork, which is not looked at; without one the scheduler "
    "reaches no peer there"
)

MAPPING = {"google.subject": "assertion.arn", "attribute.aws_role": 'assertion.arn.extract("assumed-role/{role}/")'}
"""Google Cloud's attribute for an AWS session: the name of its role, which bindings can refer to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitorReach:
    """The prefixes of the keys that a peer's scheduler reads and of the keys that it writes. It may also add shared
    keys."""

    control_read: tuple[str, ...]
    control_write: tuple[str, ...]
    data_read: tuple[str, ...]
    data_write: tuple[str, ...]

    @classmethod
    def for_home(cls, home: str) -> "VisitorReach":
        """Return the prefixes of the peer called `home`."""
        jobs = of_visits(("jobs/",), home)
        return cls(
            control_read=(*PUBLISHED, *of_visits(VISIT_READS, home)),
            control_write=of_visits(VISIT_WRITES, home),
            data_read=(*jobs, *SHARED, "sweeps/"),
            data_write=(*jobs, NAMED),
        )


def only(scheduler: str) -> str:
    """Return the provider's condition: sessions of one role."""
    account, name = parse_role(scheduler)
    partition = scheduler.split(":")[1]
    return f'assertion.arn.startsWith("arn:{partition}:sts::{account}:assumed-role/{name}/")'


def add_federation(
    parent: pulumi.Resource, name: str, spec: GcpTrainingClusterArgs, identity: GcpIdentity, store: GcpStore
) -> list[pulumi.Resource]:
    """Declare the identity and permissions of each peer here, and the own scheduler's further permissions. Nothing
    without peers."""
    peers = spec.get("federation", [])
    if not peers:
        return []
    resources: list[pulumi.Resource] = []
    child = pulumi.ResourceOptions(parent=parent)
    from_aws = [peer for peer in peers if peer["cloud"] == AWS]
    if from_aws and "network" in spec and pulumi.runtime.is_dry_run():
        pulumi.log.warn(WAY_OUT.format(name=name), parent)
    entrance = _pool(parent, name, identity) if from_aws else None
    for peer in peers:
        email, unique = (
            pulumi.Output.from_input(peer["scheduler"]),
            pulumi.Output.from_input(peer.get("scheduler_id", "")),
        )
        if peer["cloud"] == AWS and entrance is not None:
            account = serviceaccount.Account(
                f"{name}-peer-{peer['name']}",
                account_id=visitor_name(name, peer["name"]),  # which the peer works out for itself
                display_name=f"Everspot: the scheduler of cluster {peer['name']}"[:100],
                opts=child,
            )
            email, unique = account.email, account.unique_id
            resources += _admit(parent, name, peer, entrance, account)
        may = Granting(parent, f"{name}-peer-{peer['name']}", name, email, unique)
        _visiting(may, store, peer["name"])
        resources += may.bindings
    own = Granting(parent, f"{name}-federation", name, identity.scheduler_account, identity.scheduler_unique_id)
    _at_home(own, store)
    return [*resources, *own.bindings]


def _pool(parent: pulumi.Resource, name: str, identity: GcpIdentity) -> "iam.WorkloadIdentityPool":
    return iam.WorkloadIdentityPool(
        f"{name}-peers",
        workload_identity_pool_id=identity.scheduler_unique_id.apply(pool),
        display_name="Everspot: peers"[:32],
        description=f"Schedulers of other clusters, at Everspot cluster {name}",
        opts=pulumi.ResourceOptions(parent=parent),
    )


def _admit(
    parent: pulumi.Resource,
    name: str,
    peer: PeerArgs,
    entrance: "iam.WorkloadIdentityPool",
    account: "serviceaccount.Account",
) -> list[pulumi.Resource]:
    """Let the role of a peer's scheduler, and nobody else, become its service account."""
    child = pulumi.ResourceOptions(parent=parent)
    number, role = parse_role(peer["scheduler"])
    provider = iam.WorkloadIdentityPoolProvider(
        f"{name}-peer-{peer['name']}-provider",
        workload_identity_pool_id=entrance.workload_identity_pool_id,
        workload_identity_pool_provider_id=pool_provider(peer["name"]),
        display_name=f"Everspot: {peer['name']}"[:32],
        aws={"account_id": number},
        attribute_mapping=MAPPING,
        attribute_condition=only(peer["scheduler"]),
        opts=child,
    )
    member = entrance.name.apply(lambda whole: f"principalSet://iam.googleapis.com/{whole}/attribute.aws_role/{role}")
    user = serviceaccount.IAMMember(
        f"{name}-peer-{peer['name']}-user", service_account_id=account.name, role=USER, member=member, opts=child
    )
    return [provider, user]


def _visiting(may: Granting, store: GcpStore, home: str) -> None:
    """Let the scheduler of the peer called `home` read the cluster's published documents and the progress of its
    visits, offer jobs, and copy their inputs and results. It reaches only the jobs of its own visits, and can only add
    to shared objects."""
    read = may.role("reader", policies.READ, "Read what a cluster publishes and what visits need")
    write = may.role("writer", policies.WRITE, "Write offers and what visits need")
    add = may.role("adder", policies.ADD, "Add what visits need, and replace nothing")
    reach = VisitorReach.for_home(home)
    on_prefixes(may, "control-read", store.control_bucket, read, reach.control_read, listed=True)
    ended = functools.partial(policies.archived, prefix=ARCHIVE, begins=visit_prefix(home))
    may.on_bucket("archive-read", store.control_bucket, read, ended)
    on_prefixes(may, "control-write", store.control_bucket, write, reach.control_write)
    on_prefixes(may, "data-read", store.data_bucket, read, reach.data_read, listed=True)
    on_prefixes(may, "data-write", store.data_bucket, write, reach.data_write)
    on_prefixes(may, "data-add", store.data_bucket, add, SHARED)


def _at_home(may: Granting, store: GcpStore) -> None:
    """Let the own scheduler shut out the earlier owners of a job that left, answer offers, and copy jobs out and home
    again."""
    read = may.role("reader", policies.READ, "Read what jobs take along")
    write = may.role("writer", policies.WRITE, "Answer offers, and bring jobs home")
    on_prefixes(may, "control-write", store.control_bucket, write, HOME_WRITES)
    on_prefixes(may, "data-read", store.data_bucket, read, CARRIED_READS, listed=True)
    on_prefixes(may, "data-write", store.data_bucket, write, ("jobs/",))
