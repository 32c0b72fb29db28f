"""Stands in for EC2's backend: moto's, with launches that go through the market and fleets that heal.

It does not sell in other regions than its own, nor types that the catalogue (or the market script) has no price for.
"""

from typing import Any, cast

from everspot_core.jobs.records import Market
from moto.ec2.exceptions import (
    InvalidLaunchTemplateIdNotFound,
    InvalidLaunchTemplateNameNotFoundWithNameError,
    InvalidLaunchTemplateVersionNotFound,
    OperationNotPermitted4,
)
from moto.ec2.models import EC2Backend
from moto.ec2.models.instances import Reservation
from moto.ec2.models.launch_templates import LaunchTemplate, LaunchTemplateVersion
from moto.ec2.utils import convert_tag_spec
from moto.kms.models import kms_backends

from everspot_local.aws import account
from everspot_local.aws.ec2 import eventual_consistency, images, launch_rules, quota_rules, roles, scores
from everspot_local.aws.ec2.exceptions import (
    FleetNotFound,
    InsufficientInstanceCapacity,
    InvalidParameter,
    Unsupported,
    UnsupportedHere,
)
from everspot_local.aws.ec2.fleet_rules import Tokens
from everspot_local.aws.ec2.fleets import LocalFleet
from everspot_local.aws.ec2.instances import LocalInstance
from everspot_local.aws.ec2.launch_data import merge_template, provision, template_profile
from everspot_local.aws.iam import rules as iam_rules
from everspot_local.aws.strict import strict
from everspot_local.market.pools import MarketPool


class LocalEC2Backend(EC2Backend):
    """The account's EC2 backend in the only region."""

    def __init__(self, region_name: str, account_id: str) -> None:
        super().__init__(region_name, account_id)
        own = images.baked(self)
        self.amis[own.id] = own
        self.fleet_tokens = Tokens()
        self.score_configurations = scores.Configurations()

    def _load_amis(self) -> None:
        images.load(self, super()._load_amis)

    def _create_default_encryption_key(self) -> str:
        """Create AWS's default key for volumes, marked as managed by AWS: nobody has chosen it."""
        key = str(super()._create_default_encryption_key())
        kms_backends[self.account_id][self.region_name].describe_key(key).key_manager = "AWS"
        return key

    def modify_ebs_default_kms_key_id(self, kms_key_id: str) -> str:
        """Set the default key as moto does; the alias of AWS's own key creates that key if no volume has needed it
        yet."""
        if kms_key_id == "alias/aws/ebs":
            return self._create_default_encryption_key()
        return str(super().modify_ebs_default_kms_key_id(kms_key_id))

    def get_reservations_by_instance_ids(self, instance_ids: list[str], filters: Any = None) -> list[Reservation]:
        """Return reservations as moto does, which fails if an id is stated twice. Karpenter states some so."""
        return super().get_reservations_by_instance_ids(list(dict.fromkeys(instance_ids)), filters)

    def run_instances(
        self, image_id: str, count: int, user_data: Any, security_group_names: list[str], **kwargs: Any
    ) -> Reservation:
        """Launch as moto does, but only with capacity in the market, which bills the instances from now on."""
        pool, profile = self._prepare(image_id, count, kwargs)
        reservation: Reservation = super().run_instances(image_id, count, user_data, security_group_names, **kwargs)
        for instance in cast(list[LocalInstance], reservation.instances):
            if profile:
                self.associate_iam_instance_profile(instance_id=instance.id, **profile)
            provision(instance, kwargs["block_device_mappings"])
            instance.launch(pool)
        return reservation

    def check_run(self, image_id: str, count: int, **kwargs: Any) -> None:
        """Raise the error that `run_instances` would raise with the same arguments, without launching."""
        self._prepare(image_id, count, kwargs)

    def _prepare(self, image_id: str, count: int, kwargs: dict[str, Any]) -> tuple[MarketPool, dict[str, str]]:
        """Merge the launch template into a launch's arguments and check them against the rules and the market. Return
        the pool, and the template's instance profile."""
        template = self._template_data(kwargs.get("launch_template") or {})
        if kwargs.get("is_instance_type_default") and template.get("InstanceType"):
            kwargs.update(instance_type=template["InstanceType"], is_instance_type_default=False)
        spot = kwargs.get("lifecycle") == "spot" or kwargs.get("instance_market_options") == "spot"
        market = Market.SPOT if spot else Market.ON_DEMAND
        image_id = image_id or template.get("ImageId") or ""
        image = self.amis.get(image_id)
        launch_rules.check_market_options(template.get("InstanceMarketOptions"), "a launch template")
        if strict():
            launch_rules.check_groups(template, kwargs)
        merge_template(kwargs, template, image if isinstance(image, images.LocalAmi) else None)
        self._tag_volumes(kwargs, template, market)
        pool = self.pool_for(kwargs["instance_type"], self._launch_zone(kwargs))
        if strict():
            launch_rules.check_spot_tags(template, market)
            launch_rules.check_credits(
                account.current().market.pools.catalogue.types[kwargs["instance_type"]],
                template.get("CreditSpecification"),
            )
            self._check_launch(image_id, count, market, kwargs)
        if pool.hourly_usd(market) is None:
            raise Unsupported(f"There is no Spot market for {pool.instance_type} in {pool.zone}.")
        if pool.available(market) < count:
            raise InsufficientInstanceCapacity(pool.instance_type, pool.zone)
        profile = template_profile(kwargs, template)
        profile_fields = profile or kwargs
        iam_rules.check_profile(
            profile_fields.get("iam_instance_profile_name"), profile_fields.get("iam_instance_profile_arn")
        )
        return pool, profile

    def _check_launch(self, image_id: str, count: int, market: Market, kwargs: dict[str, Any]) -> None:
        if market is Market.SPOT:
            roles.need_spot_role()
        image = launch_rules.find_image(self, image_id)
        launch_rules.check_image(image, account.current().market.pools.catalogue.types[kwargs["instance_type"]])
        launch_rules.check_devices(self, image, kwargs["block_device_mappings"])
        groups = [g for g in kwargs.get("security_group_ids") or [] if isinstance(g, str)]
        launch_rules.check_networks(self, kwargs.get("subnet_id"), groups, count)
        quota_rules.check_vcpus(kwargs["instance_type"], market, count)

    def describe_instances(self, filters: Any = None) -> list[Reservation]:
        """Describe instances as moto does, except instances that are too new to be shown."""
        return eventual_consistency.only_visible(super().describe_instances(filters))

    def describe_instance_status(self, instance_ids: list[str], include_all_instances: bool, filters: Any) -> list[Any]:
        """Describe the status of instances as moto does, except instances that are too new to be shown."""
        statuses = super().describe_instance_status(instance_ids, include_all_instances, filters)
        return [instance for instance in statuses if eventual_consistency.visible(instance)]

    def terminate_instances(self, instance_ids: list[str]) -> list[tuple[Any, Any]]:
        """Terminate by EC2's rules (API reference, TerminateInstances): one wrong id, and no instance is terminated;
        one protected instance, and none of its zone is."""
        eventual_consistency.check_form(instance_ids)
        instances = self.get_multi_instances_by_id(list(dict.fromkeys(instance_ids)))
        shielded = [i for i in instances if i.disable_api_termination is True]
        zones = {i.availability_zone for i in shielded}
        free = [i.id for i in instances if i.availability_zone not in zones]
        ended = super().terminate_instances(free) if free or not instances else []
        if shielded:
            raise OperationNotPermitted4(shielded[0].id)
        return ended

    def pool_for(self, instance_type: str, zone: str) -> MarketPool:
        """Return the market's pool, or raise EC2's error for a type or a combination that does not exist."""
        here = account.current()
        if self.region_name != here.region:
            raise UnsupportedHere(f"instances in {self.region_name}; its only region is {here.region}")
        if instance_type not in here.market.pools.catalogue.types:
            raise InvalidParameter(f"Invalid value '{instance_type}' for InstanceType.")
        pool = here.market.pools.get(instance_type, zone)
        if pool is None:
            raise Unsupported(
                f"Your requested instance type ({instance_type}) is not supported in your requested Availability Zone "
                f"({zone})."
            )
        return pool

    def describe_instance_types(self, instance_types: list[str] | None = None, filters: Any = None) -> list[Any]:
        """Describe instance types as moto does. The answer for thousands of types takes seconds, so callers should name
        those they need."""
        return super().describe_instance_types(instance_types, filters)

    def describe_instance_type_offerings(
        self, location_type: str | None = None, filters: dict[str, Any] | None = None
    ) -> list[dict[str, str]]:
        """Return by zone name the types that this market sells; by region and zone id, return moto's list."""
        if location_type != "availability-zone":
            return super().describe_instance_type_offerings(location_type, filters)
        pools, selected = account.current().market.pools, filters or {}
        kinds, zones = selected.get("instance-type", pools.catalogue.types), selected.get("location", pools.zones)
        return [
            {"InstanceType": kind, "LocationType": location_type, "Location": zone}
            for kind in kinds
            for zone in zones
            if pools.offers(kind, zone)
        ]

    def create_fleet(self, request: dict[str, Any]) -> LocalFleet:  # type: ignore[override]
        """Carry out a CreateFleet request. An `instant` fleet has launched what it could when this returns. A repeated
        request returns the fleet that it made."""
        earlier_fleet: LocalFleet | None = self.fleet_tokens.find(request)
        if earlier_fleet is not None:
            return earlier_fleet
        fleet = LocalFleet(self, request)
        fleets: dict[str, Any] = self.fleets  # moto's own kind of fleet is never made
        fleets[fleet.id] = fleet
        self.fleet_tokens.keep(request, fleet)
        fleet.begin()
        return fleet

    def local_fleet(self, fleet_id: str) -> LocalFleet:
        """Return a fleet by its id, or raise EC2's error."""
        fleet = self.fleets.get(fleet_id)
        if fleet is None:
            raise FleetNotFound(fleet_id)
        return fleet  # type: ignore[return-value]

    def reset(self) -> None:
        """Do nothing. moto calls this just before it discards the whole backend and makes a new one on demand; moto's
        own method would create everything again, which takes longer than most requests together."""

    def create_launch_template(
        self, name: str, description: str, template_data: dict[str, Any], tag_spec: dict[str, Any]
    ) -> LaunchTemplate:
        """Create a launch template as moto does, but do not apply the template's own tags to what is launched from
        it."""
        launched = [s for s in template_data.get("TagSpecifications") or [] if s["ResourceType"] != "launch-template"]
        if "TagSpecifications" in template_data:
            template_data["TagSpecifications"] = launched
        return super().create_launch_template(name, description, template_data, tag_spec)

    def create_tags(self, resource_ids: list[str], tags: dict[str, str]) -> bool:
        """Set tags as moto does, also on launch templates: moto describes only the tags that a template started with.

        CreateTags: "Adds or overwrites only the specified tags" (Amazon EC2 API Reference).
        """
        done = bool(super().create_tags(resource_ids, tags))
        self._describe_tags_of_templates(resource_ids)
        return done

    def delete_tags(self, resource_ids: list[str], tags: dict[str, str]) -> bool:
        """Remove tags as moto does, also of a launch template."""
        done = bool(super().delete_tags(resource_ids, tags))
        self._describe_tags_of_templates(resource_ids)
        return done

    def _describe_tags_of_templates(self, resource_ids: list[str]) -> None:
        for resource_id in resource_ids:
            if template := self.launch_templates.get(resource_id):
                template.tags = template.get_tags()

    def _get_template_from_args(self, launch_template_arg: dict[str, Any]) -> LaunchTemplateVersion:
        """Find the template's version as moto does, with EC2's errors for one that does not exist (EC2 error codes)."""
        name = str(launch_template_arg.get("LaunchTemplateName") or "")
        template_id = str(launch_template_arg.get("LaunchTemplateId") or self.launch_template_name_to_ids.get(name, ""))
        if template_id not in self.launch_templates:
            raise (
                InvalidLaunchTemplateNameNotFoundWithNameError(name)
                if name
                else InvalidLaunchTemplateIdNotFound(template_id)
            )
        version = str(launch_template_arg.get("Version") or "$Default")
        version_names = {"$Default", "$Latest", *(str(v.number) for v in self.launch_templates[template_id].versions)}
        if version not in version_names:
            raise InvalidLaunchTemplateVersionNotFound(version, template_id)
        return super()._get_template_from_args(launch_template_arg)

    def _template_data(self, launch_template: dict[str, Any]) -> dict[str, Any]:
        if not launch_template:
            return {}
        return self._get_template_from_args(launch_template).data

    def _tag_volumes(self, kwargs: dict[str, Any], template: dict[str, Any], market: Market) -> None:
        """Add the template's tags of volumes, which moto ignores. EC2 does not tag volumes of Spot instances in fleets
        of type request or maintain (EC2 User Guide, "Tag a new or existing EC2 Fleet request …")."""
        fleet = self.fleets.get(kwargs.get("fleet_id") or "")
        if market is Market.SPOT and fleet is not None and fleet.type != "instant":
            return
        tags = kwargs.get("tags") or {}
        stated = convert_tag_spec(template.get("TagSpecifications") or []).get("volume", {})
        kwargs["tags"] = {**tags, "volume": {**stated, **tags.get("volume", {})}}

    def _launch_zone(self, kwargs: dict[str, Any]) -> str:
        subnet = kwargs.get("subnet_id") or next((n["SubnetId"] for n in kwargs.get("nics", []) if "SubnetId" in n), "")
        if subnet:
            return str(self.get_subnet(subnet).availability_zone)
        zone = kwargs.get("placement") or f"{self.region_name}a"
        if zone not in account.current().market.pools.zones:
            raise InvalidParameter(f"Invalid availability zone: [{zone}]")
        return str(zone)
