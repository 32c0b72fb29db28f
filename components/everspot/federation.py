"""Settings of the clusters that a cluster exchanges jobs with, and what follows from them on every cloud."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import pulumi
from everspot_clouds.egress_prices import egress_usd_per_gb
from everspot_clouds.federation_names import provider_path, region_of_url, visitor_name
from everspot_core.cluster.peers import Peer
from everspot_core.jobs.visit_records import visit_prefix
from everspot_core.validation.problems import Problems, shown

from everspot import common

AWS, GCP = "aws", "gcp"
SCHEMES = {AWS: "s3", GCP: "gs"}
"""The clouds that a peer may be on, and the schemes of their buckets' URLs."""

PUBLISHED = ("cluster.json", "pools.json", "waiting.json", "usage.json", "schedulers/")
"""The documents of the control bucket that a cluster publishes to its peers."""

VISIT_READS = ("visits/", "records/", "heads/", "events/", "cancels/")
"""Prefixes of a control bucket below which a peer's scheduler reads the documents of its visits."""

VISIT_WRITES = ("visits/", "heads/", "cancels/")
"""Prefixes of a control bucket below which a peer's scheduler writes offers, and heads and cancellations of its
visits."""

ARCHIVE = "archive/"
"""Prefix of a control bucket below which ended jobs are, each below the month of its end."""

SHARED = ("code/", "datasets/", "wheels/")
"""Prefixes of a data bucket to which a peer's scheduler copies the inputs of visits, under their digests."""

NAMED = "code/named/"
"""The prefix of marks that code is about to be needed. A peer's scheduler may overwrite its marks."""

CARRIED_READS = ("jobs/", *SHARED, "sweeps/")
"""Prefixes of a data bucket that a scheduler reads to carry its own jobs: a sweep may be about to remove what is
carried."""


def of_visits(prefixes: Sequence[str], home: str) -> tuple[str, ...]:
    """Return how the keys of a home's visits begin, below some prefixes. `home`: the cluster's name."""
    return tuple(f"{prefix}{visit_prefix(home)}" for prefix in prefixes)


_S3 = re.compile(r"s3://[a-z0-9][a-z0-9.-]+\?region=[a-z]{2,4}(-[a-z]+)+-\d")
_GS = re.compile(r"gs://[a-z0-9][a-z0-9._-]+")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::(\d{12}):role/([\w+=,.@-]{1,64})")
_ACCOUNT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]@[a-z][a-z0-9.:-]+\.iam\.gserviceaccount\.com")
_NUMBER = re.compile(r"\d{6,32}")


class PeerArgs(TypedDict):
    """Another cluster with which jobs are exchanged. All but `egressUsdPerGb` is what that cluster's stack prints as
    its output `peer`."""

    name: str
    """Name of the cluster."""
    cloud: str
    """Its cloud: aws or gcp."""
    control: str
    """URL of its control bucket: s3://BUCKET?region=REGION or gs://BUCKET."""
    data: str
    """URL of its data bucket, in the same form."""
    scheduler: str
    """Identity of its scheduler: the ARN of a role on AWS, the email of a service account on Google Cloud."""
    scheduler_id: NotRequired[str]
    """Unique id of the service account, a number. Google Cloud only, and mandatory there."""
    project_number: NotRequired[str]
    """Number of its project. Google Cloud only, and mandatory there."""
    egress_usd_per_gb: NotRequired[float]
    """Price of a GB that is sent between the two clusters, which is counted before a job moves. Default: the list price
    of the more expensive direction; between two clusters on Google Cloud that of two regions of a continent."""


def check_peers(problems: Problems, name: str, peers: Sequence[PeerArgs]) -> None:
    """Add a problem for each mistake in the peers of the cluster called `name`."""
    for index, peer in enumerate(peers):
        here, own = problems.at(f"federation[{index}]"), Problems()
        common.check_cluster_name(own, peer["name"])
        here.need(not own.collected, "name", own.collected[0].reason if own.collected else "")
        here.need(peer["name"] != name, "name", f"{shown(name)} is this cluster itself")
        twice = [other["name"] for other in peers].count(peer["name"]) > 1
        here.need(not twice, "name", f"{shown(peer['name'])} is named twice")
        cloud = peer["cloud"]
        if here.need(cloud in SCHEMES, "cloud", f"{shown(cloud)} is none; there is {', '.join(SCHEMES)}"):
            _check_places(here, peer)
        if "egress_usd_per_gb" in peer:
            here.number(peer["egress_usd_per_gb"], "egressUsdPerGb", 0, 10)


def _check_places(here: Problems, peer: PeerArgs) -> None:
    on_aws = peer["cloud"] == AWS
    form, example = (_S3, "s3://BUCKET?region=REGION") if on_aws else (_GS, "gs://BUCKET")
    for key, url in (("control", peer["control"]), ("data", peer["data"])):
        here.need(bool(form.fullmatch(url)), key, f"{shown(url)} is not of the form {example}")
    principal, example = (_ROLE, "arn:aws:iam::ACCOUNT:role/NAME") if on_aws else (_ACCOUNT, "NAME@PROJECT.iam.…")
    scheduler = peer["scheduler"]
    here.need(bool(principal.fullmatch(scheduler)), "scheduler", f"{shown(scheduler)} is not of the form {example}")
    for key, identity in (("schedulerId", peer.get("scheduler_id")), ("projectNumber", peer.get("project_number"))):
        if on_aws:
            here.need(identity is None, key, "is for clusters on Google Cloud")
        else:
            fits = identity is not None and bool(_NUMBER.fullmatch(identity))
            here.need(fits, key, "is missing" if identity is None else f"{shown(identity)} is no number in digits")


def build_peers(name: str, cloud: str, region: str, spec: Mapping[str, Any]) -> tuple[Peer, ...]:
    """Return the peers as the manifest of the cluster called `name` names them, with who its scheduler becomes
    there."""
    return tuple(_peer(name, cloud, region, peer) for peer in spec.get("federation", []))


def _peer(name: str, cloud: str, region: str, peer: PeerArgs) -> Peer:
    identity, audience = "", ""
    if peer["cloud"] == AWS:
        identity = role_arn(peer["scheduler"], visitor_name(peer["name"], name))
    elif cloud != GCP:
        project = peer["scheduler"].rpartition("@")[2]
        identity = f"{visitor_name(peer['name'], name)}@{project}"
        audience = provider_path(peer["project_number"], peer["scheduler_id"], name)
    same_region = cloud == AWS and region_of_url(peer["control"]) == region
    usual = egress_usd_per_gb(cloud, peer["cloud"], same_region=same_region)
    return Peer(
        name=peer["name"],
        cloud=peer["cloud"],
        control_url=peer["control"],
        data_url=peer["data"],
        identity=identity,
        audience=audience,
        egress_usd_per_gb=float(peer.get("egress_usd_per_gb", usual)),
    )


def card(name: str, cloud: str, store: Any, scheduler: pulumi.Output[str], **more: Any) -> pulumi.Output[Any]:
    """Return a cluster as an entry of another one's `federation`. `store`: its buckets."""
    facts = {"control": store.control_url, "data": store.data_url, "scheduler": scheduler, **more}
    return pulumi.Output.all(**facts).apply(lambda known: {"name": name, "cloud": cloud, **known})


def role_arn(other: str, name: str) -> str:
    """Return the ARN of the role of this name in the account of another role."""
    return f"{other.partition(':role/')[0]}:role/{name}"


def parse_role(arn: str) -> tuple[str, str]:
    """Return the account and the name of a role.

    Raises:
        ValueError: if that is no role's ARN.
    """
    match = _ROLE.fullmatch(arn)
    if match is None:
        raise ValueError(f"{arn} is no role's ARN")
    return match[1], match[2]


def parse_bucket(url: str) -> str:
    """Return the bucket that a URL names."""
    return url.partition("://")[2].partition("?")[0]
