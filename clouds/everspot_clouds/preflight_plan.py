"""Reads what a preflight checks from a stack's settings, before the cluster exists."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from everspot_core.capacity.fleet import derived_weights
from everspot_core.capacity.gpus import IMAGE_BUILD
from everspot_core.cluster.manifest import Elastic, Manifest, Standing
from everspot_core.cluster.preflight import PreflightPlan
from everspot_core.validation.problems import Problems

from everspot_clouds.costing import choices, list_markets
from everspot_clouds.estimating import environment
from everspot_clouds.price_files import load_catalogue
from everspot_clouds.registry import DEPLOYABLE, REVIEWABLE
from everspot_clouds.settings_estimate import PREFIX

_IMAGE_SOURCES = ("imageParameter", "imageFamily")
"""Settings that name where an image is looked up."""


def read_plan(stack: str, config: Mapping[str, Any], project: str) -> PreflightPlan | None:
    """Return the plan of the cluster that a stack's settings declare; None if they declare none.

    Args:
        stack: The stack's name.
        config: The `config` of its file.
        project: The project's name.

    Raises:
        BadInputs: naming everything that is wrong with the settings.
    """
    outlined = environment(stack, config, project)
    settings = config.get(f"{project}:cluster")
    if settings is None:
        return None
    cloud, problems = str(settings["cloud"]), Problems()
    missing = f"{cloud} has no preflight; there is one on {', '.join(DEPLOYABLE)}"
    if not problems.need(cloud in DEPLOYABLE, f"{project}:cluster.cloud", missing):
        problems.raise_any(f"Stack {stack}")
    if cloud not in REVIEWABLE:
        return _inside_plan(stack, settings, outlined.regions)
    outline = import_module(f"everspot_clouds.{cloud}.settings_estimate")
    capacity, catalogue = outline.read_capacity(problems, settings["capacity"])
    source = next((str(settings[key]) for key in _IMAGE_SOURCES if settings.get(key)), "")
    image = source or str(settings.get("imageId") or "")
    problems.need(bool(image), f"{project}:cluster.imageId", "is missing, and so is the name of where it is looked up")
    problems.raise_any(f"Stack {stack}")
    elastic = settings["capacity"].get("elastic")
    manifest = Manifest(
        cluster=f"{PREFIX}{stack}", cloud=cloud, region=outlined.regions[cloud],
        account=str(config.get(f"{cloud}:project") or ""), control_url="", data_url="",
        standing=Standing(
            on_demand_units=capacity.on_demand_target,
            spot_units=capacity.spot_target,
            weights=derived_weights(capacity, catalogue.types),
        ),
        elastic=None if elastic is None else _elastic(elastic, [choice.name for choice in capacity.types]),
        scheduler_type=settings.get("schedulerType", outline.SCHEDULER_TYPE),
    )  # fmt: skip
    return PreflightPlan(
        manifest=manifest,
        catalogue=catalogue,
        types=tuple(catalogue.types[choice.name] for choice in capacity.types),
        image=image,
        image_source=source,
        volume_gib=settings.get("volumeGib"),
        gpu_arches=tuple(settings.get("gpuArches") or IMAGE_BUILD.arches),
        subnet_ids=tuple(settings.get("subnetIds", ())),
        boundary=str(settings.get("permissionsBoundaryArn") or ""),
        job_role=bool(settings.get("jobRole", True)),
        image_repositories=tuple(map(str, settings.get("imageRepositories", ()))),
    )


def _inside_plan(stack: str, settings: Mapping[str, Any], regions: Mapping[str, str]) -> PreflightPlan:
    """Return the plan of a cluster inside an existing cluster of containers. It has no standing capacity."""
    problems, cluster = Problems().at("everspot:cluster"), f"{PREFIX}{stack}"
    for name in ("image", "eksCluster"):
        problems.need(bool(settings.get(name)), name, "is missing")
    problems.raise_any(f"Stack {stack}")
    types, declared = choices(settings["capacity"])
    nodes = settings.get("nodes", {})
    catalogue, names = load_catalogue().with_types(declared), [choice.name for choice in types]
    manifest = Manifest(
        cluster=cluster, cloud=str(settings["cloud"]), region=regions["aws"], control_url="", data_url="",
        elastic=_elastic(settings["capacity"]["elastic"], names),
    )  # fmt: skip
    return PreflightPlan(
        manifest=manifest,
        catalogue=catalogue,
        types=tuple(catalogue.types[name] for name in names),
        image=str(settings["image"]),
        host_cluster=str(settings["eksCluster"]),
        namespace=str(settings.get("namespace") or cluster),
        context=str(settings.get("context") or ""),
        datasets_claim=str(settings.get("datasetsClaim") or ""),
        zones=tuple(settings["capacity"]["elastic"].get("zones", ())),
        node_role=str(nodes.get("role") or ""),
        subnet_tags=dict(nodes.get("subnetTags") or {}),
        security_group_tags=dict(nodes.get("securityGroupTags") or {}),
    )


def _elastic(settings: Mapping[str, Any], types: list[str]) -> Elastic:
    """Return the elastic capacity of the settings. The template and the places exist only after `pulumi up`."""
    return Elastic(
        types=types,
        markets=list(list_markets(settings)),
        max_instances=int(settings["maxInstances"]),
        max_usd_per_hour=settings.get("maxUsdPerHour"),
        template="",
        template_version="",
        places={},
    )
