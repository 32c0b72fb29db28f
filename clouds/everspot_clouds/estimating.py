"""The cost of a change, from the resources that a preview declares before and after it, on whichever clouds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.cluster.declared import DeclaredResource
from everspot_core.estimate.model import Estimate
from everspot_core.estimate.requested import ElasticRequest, RequestedCapacity, StandingRequest
from everspot_core.estimate.totals import estimate
from everspot_core.estimate.usage_history import Recent
from everspot_core.validation.bounds import check_values
from everspot_core.validation.problems import Problems

from everspot_clouds.aws import estimate as aws
from everspot_clouds.aws import fixed_prices
from everspot_clouds.aws.settings_estimate import check_arns
from everspot_clouds.aws.settings_estimate import outline_cluster as outline_aws
from everspot_clouds.gcp import estimate as gcp
from everspot_clouds.gcp.settings_estimate import outline_cluster as outline_gcp
from everspot_clouds.kubernetes.settings_estimate import outline_cluster as outline_kubernetes
from everspot_clouds.price_files import load_catalogue
from everspot_clouds.setting_names import check_names
from everspot_clouds.settings_estimate import check_shape

_CLOUDS = {"aws": aws.collect_charges, "gcp": gcp.collect_charges}
_MACHINES = {"aws": "aws", "gcp": "gcp", "kubernetes": "aws"}
"""By the cloud of a cluster, the cloud whose machines it has."""
_STATE: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "aws": {"aws:kms/key:Key": {"enableKeyRotation": True}, "aws:s3/bucket:Bucket": {}},
    "gcp": {"gcp:kms/cryptoKey:CryptoKey": {}, "gcp:storage/bucket:Bucket": {}},
}
"""The storage of a bootstrap's state: the resources that cost money."""

_NO_REGIONS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Environment:
    """The declarations of a settings file that cost money. `regions`: by cloud."""

    resources: tuple[DeclaredResource, ...]
    regions: Mapping[str, str]


def environment(stack: str, config: Mapping[str, Any], project: str) -> Environment:
    """Return the declarations of a stack's settings. `config`: the file's `config`; `project`: the project's name.
    Resources that an account has once cost as much as the storage of their state.

    Raises:
        BadInputs: naming every unknown setting, and every reason why the cluster cannot be priced.
    """
    problems = Problems()
    check_names(problems, config, project)
    regions = {cloud: str(config[f"{cloud}:region"]) for cloud in _CLOUDS if config.get(f"{cloud}:region")}
    resources = _state(stack, config.get(f"{project}:bootstrap"))
    settings = config.get(f"{project}:cluster")
    if settings is None:
        _check_values(problems, config, project)
        problems.raise_any(f"Stack {stack}")
        return Environment(tuple(resources), regions)
    here = problems.at(f"{project}:cluster")
    if here.need(isinstance(settings, Mapping), "", "has to be a mapping"):
        cloud = settings.get("cloud")
        if here.need(cloud in _MACHINES, "cloud", f"is not one of {', '.join(_MACHINES)}"):
            machines = _MACHINES[str(cloud)]
            problems.need(machines in regions, f"{machines}:region", "is missing")
            if machines == "aws":
                check_arns(here, settings)
            if check_shape(here, settings) and machines in regions:
                resources += _outline_cluster(here, stack, settings, regions[machines])
    _check_values(problems, config, project)
    problems.raise_any(f"Stack {stack}")
    return Environment(tuple(resources), regions)


def _outline_cluster(
    problems: Problems, stack: str, settings: Mapping[str, Any], region: str
) -> Sequence[DeclaredResource]:
    """Return the resources of a cluster, by its cloud."""
    if settings["cloud"] == "gcp":
        return outline_gcp(problems, stack, settings, region)
    return (outline_aws if settings["cloud"] == "aws" else outline_kubernetes)(problems, stack, settings)


def _check_values(problems: Problems, config: Mapping[str, Any], project: str) -> None:
    for key, section in config.items():
        if str(key).startswith(f"{project}:") and isinstance(section, Mapping):
            check_values(problems.at(str(key)), section)


def _state(stack: str, settings: Any) -> list[DeclaredResource]:
    """Return the declarations of a bootstrap that cost money; nothing if its settings cannot be read."""
    section = settings if isinstance(settings, Mapping) else {}
    tags = section.get("tags")
    owned = {"tags": tags, "labels": {str(k).lower(): v for k, v in tags.items()}} if isinstance(tags, Mapping) else {}
    kinds = _STATE.get(str(section.get("cloud")), {})
    return [
        DeclaredResource(f"urn:pulumi:{stack}::everspot::{kind}::everspot-bootstrap-state", kind, {**owned, **inputs})
        for kind, inputs in kinds.items()
    ]


def estimated(
    before: Sequence[DeclaredResource] | None,
    after: Sequence[DeclaredResource] | None,
    *,
    regions: Mapping[str, str] = _NO_REGIONS,
    catalogue: Catalogue | None = None,
    recent: Recent | None = None,
) -> Estimate:
    """Return the cost of a change for a month.

    Args:
        before: All resources as they are declared now, components and providers too; None if that is not known. An
            environment that does not exist yet has none: an empty list.
        after: The same as the change declares them; None if the preview failed.
        regions: The region by cloud (`aws`, `gcp`), where the settings say it. Else the providers among the resources
            are asked, and the zones that resources name.
        catalogue: Default: the prices of the project around the working directory, and the catalogue that comes with
            Everspot.
        recent: Usage of the last month, from the cluster's ledger.
    """
    prices = load_catalogue() if catalogue is None else catalogue
    was, will = (None if side is None else collect_charges(side, regions) for side in (before, after))
    return estimate(was, will, prices, recent, as_of=fixed_prices.AS_OF)


def list_unpriced(
    resources: Sequence[DeclaredResource], regions: Mapping[str, str] = _NO_REGIONS
) -> dict[str, set[str]]:
    """Return by region the instance types of resources that have no known on-demand price there: what they cost is in
    no estimate, or only as what other types cost."""
    charges, unpriced = collect_charges(resources, regions), dict[str, set[str]]()
    catalogue = load_catalogue().with_types(charges.types)
    requests: list[StandingRequest | ElasticRequest] = [*charges.standing, *charges.elastic]
    for request in requests:
        for candidate in request.candidates:
            if catalogue.on_demand(candidate.instance_type, request.region) is None:
                unpriced.setdefault(request.region, set()).add(candidate.instance_type)
    return unpriced


def collect_charges(
    resources: Sequence[DeclaredResource], regions: Mapping[str, str] = _NO_REGIONS
) -> RequestedCapacity:
    """Return the requests of resources, on all clouds together."""
    parts = [collect(resources, regions.get(cloud)) for cloud, collect in _CLOUDS.items()]
    return RequestedCapacity(
        **{field.name: sum((getattr(part, field.name) for part in parts), ()) for field in fields(RequestedCapacity)}
    )
