"""The permissions of other clusters' schedulers in a cluster on AWS, and of its own scheduler at its peers.

A peer's scheduler becomes a role that is made for it alone: a scheduler on Google Cloud by an identity token of its
service account (IAM user guide, "Create a role for OIDC federation"; Google is built into IAM, so that no provider is
declared), a scheduler on AWS by its own role.
"""

import json
from collections.abc import Sequence

import pulumi
from everspot_clouds.aws.rules import partition
from everspot_clouds.federation_names import region_of_url, visitor_name
from pulumi_aws import iam

from everspot.aws import policies, tagging
from everspot.aws.args import AwsTrainingClusterArgs
from everspot.aws.identity import AwsIdentity
from everspot.aws.store import AwsStore
from everspot.federation import (
    ARCHIVE,
    AWS,
    CARRIED_READS,
    PUBLISHED,
    SHARED,
    VISIT_READS,
    VISIT_WRITES,
    PeerArgs,
    of_visits,
    parse_bucket,
    role_arn,
)

ISSUER = "accounts.google.com"
"""Google, as IAM has it built in."""

HOME_WRITES = ("heads/", "visits/")
"""Further prefixes of the control bucket that the scheduler of a federation writes: it shuts out what ran before a job
left, and answers offers."""


def near_arns(peers: Sequence[PeerArgs], region: str) -> list[str]:
    """Return the ARNs of the buckets of peers in the region, which S3's endpoint has to allow."""
    near = [peer for peer in peers if peer["cloud"] == AWS and region_of_url(peer["control"]) == region]
    return [
        f"arn:{partition(region)}:s3:::{parse_bucket(url)}" for peer in near for url in (peer["control"], peer["data"])
    ]


def trust(peer: PeerArgs, own_arn: str) -> policies.Document:
    """Return the trust policy of a peer's role. `own_arn`: of this role, to which an identity token has to be made out.

    Of a token of Google's, `aud` is the claim `azp`, and `oaud` the claim `aud` (IAM user guide, "Available keys for
    AWS OIDC federation"). `azp` and `sub` are the service account's unique id, which no other account ever gets.
    """
    if peer["cloud"] == AWS:
        statement = {"Principal": {"AWS": peer["scheduler"]}, "Action": "sts:AssumeRole"}
    else:
        keys = {"aud": peer["scheduler_id"], "sub": peer["scheduler_id"], "oaud": own_arn}
        statement = {
            "Principal": {"Federated": ISSUER},
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": {"StringEquals": {f"{ISSUER}:{key}": value for key, value in keys.items()}},
        }
    return policies.document([{"Sid": "ThePeersScheduler", "Effect": "Allow", **statement}])


def visitor_policy(
    control_arn: str, data_arn: str, key_arn: str | None, home: str, former_key_arns: Sequence[str] = ()
) -> policies.Document:
    """Return the permissions of the scheduler of the peer called `home` here: read the cluster's published documents
    and the progress of its visits, offer jobs, and copy their inputs and results. It reaches only the jobs of its own
    visits. Listings show names, but no content of other jobs."""
    read = [*PUBLISHED, *of_visits(VISIT_READS, home), *of_visits((f"{ARCHIVE}*/",), home)]
    (offers,) = of_visits(("visits/",), home)
    carried = [f"{data_arn}/{place}*" for place in (*of_visits(("jobs/",), home), *SHARED)]
    listed = ("schedulers/", "visits/", ARCHIVE, *of_visits(("events/",), home))
    statements = [
        policies.allow("ReadWhatIsPublished", ["s3:GetObject"], [f"{control_arn}/{place}*" for place in read]),
        policies.allow("OfferJobs", ["s3:PutObject"], [f"{control_arn}/{p}*" for p in of_visits(VISIT_WRITES, home)]),
        policies.allow("WithdrawOffers", ["s3:DeleteObject"], [f"{control_arn}/{offers}*"]),
        policies.allow("ReadVisits", ["s3:GetObject"], [*carried, f"{data_arn}/sweeps/*"]),
        policies.allow("CarryJobs", ["s3:PutObject", "s3:AbortMultipartUpload"], carried),
        policies.listing("ListControl", control_arn, listed),
        policies.listing("ListData", data_arn, (*of_visits(("jobs/",), home), *SHARED, "sweeps/")),
    ]
    return policies.document([*statements, *policies.key(key_arn, former_key_arns)])


def home_policy(control_arn: str, data_arn: str, roles: Sequence[str]) -> policies.Document:
    """Return the further permissions of the own scheduler: become its identity at its peers, and copy jobs out of the
    own data bucket and home again. `roles`: ARNs of its roles at peers on AWS."""
    statements = [
        policies.allow("FenceAndAnswer", ["s3:PutObject"], [f"{control_arn}/{place}*" for place in HOME_WRITES]),
        policies.allow("ReadWhatTravels", ["s3:GetObject"], [f"{data_arn}/{place}*" for place in CARRIED_READS]),
        policies.allow("BringHome", ["s3:PutObject", "s3:AbortMultipartUpload"], [f"{data_arn}/jobs/*"]),
        policies.listing("ListData", data_arn, CARRIED_READS),
    ]
    if roles:
        statements.append(policies.allow("VisitPeers", ["sts:AssumeRole"], list(roles)))
    return policies.document(statements)


def add_federation(
    parent: pulumi.Resource, name: str, spec: AwsTrainingClusterArgs, identity: AwsIdentity, store: AwsStore
) -> list[pulumi.Resource]:
    """Declare a role for each peer, and the own scheduler's further permissions. Nothing without peers."""
    # The buckets first: they refuse a change of their key that would make objects unreadable for these roles.
    peers, child = spec.get("federation", []), pulumi.ResourceOptions(parent=parent, depends_on=[store])
    if not peers:
        return []
    key = pulumi.Output.from_input(spec.get("kms_key_arn"))
    scheduler = identity.scheduler_role_arn
    facts = pulumi.Output.all(control=store.control_arn, data=store.data_arn, key=key, own=scheduler)
    policies: list[pulumi.Resource] = []
    for peer in peers:
        called = visitor_name(name, peer["name"])
        role = iam.Role(
            f"{name}-peer-{peer['name']}",
            name=called,  # which the peer works out for itself
            description=f"Everspot: the scheduler of cluster {peer['name']}, at {name}",
            assume_role_policy=facts.apply(
                lambda known, p=peer, n=called: json.dumps(trust(p, role_arn(known["own"], n)))  # type: ignore[misc]
            ),
            permissions_boundary=spec.get("permissions_boundary_arn"),
            tags=tagging.cluster_tags(name, spec["tags"]),
            opts=child,
        )
        policies.append(
            iam.RolePolicy(
                f"{name}-peer-{peer['name']}-permissions",
                role=role.name,
                policy=facts.apply(
                    lambda f, home=peer["name"]: json.dumps(  # type: ignore[misc]
                        visitor_policy(f["control"], f["data"], f["key"], home, spec.get("former_kms_key_arns", []))
                    )
                ),
                opts=child,
            )
        )
    roles = [role_arn(peer["scheduler"], visitor_name(peer["name"], name)) for peer in peers if peer["cloud"] == AWS]
    policies.append(
        iam.RolePolicy(
            f"{name}-federation",
            role=scheduler.apply(lambda arn: arn.rpartition("/")[2]),
            policy=facts.apply(lambda f: json.dumps(home_policy(f["control"], f["data"], roles))),
            opts=child,
        )
    )
    return policies
