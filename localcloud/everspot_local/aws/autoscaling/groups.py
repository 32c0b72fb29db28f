"""Stands in for EC2 Auto Scaling: moto's groups, which launch from the current template version and replace ended
instances after a delay.

It does not scale by itself, nor launch Spot or mixed instances. `refresh` replaces a group's instances one by one.
"""

import logging
from typing import Any, cast

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import ASG_NAME_TAG, FakeAutoScalingGroup, InstanceState, autoscaling_backends
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.common_types import TYPE_RESPONSE
from moto.core.exceptions import ServiceException

from everspot_local.aws import account, refusals
from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.autoscaling.refresh import Refresh
from everspot_local.aws.ec2.instances import LocalInstance
from everspot_local.aws.iam import rules as iam_rules
from everspot_local.market.market import LocalMarket

log = logging.getLogger(__name__)


class LocalGroup(FakeAutoScalingGroup):
    """A group of on-demand instances from a launch template, spread over its subnets in turn."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.refreshes: list[Refresh] = []
        self._made_from: dict[str, tuple[str, int]] = {}
        super().__init__(*args, **kwargs)

    def _set_launch_configuration(
        self, launch_config_name: str, launch_template: dict[str, Any], mixed_instances_policy: dict[str, Any] | None
    ) -> None:
        if mixed_instances_policy or launch_config_name:
            raise ValidationError("The local cloud supports groups with a launch template only.")
        super()._set_launch_configuration(launch_config_name, launch_template, mixed_instances_policy)
        self._check_profile()

    def _check_profile(self) -> None:
        """Refuse a group whose launch template names an unknown instance profile. AWS checks this when a group is
        created or updated, and the upstream provider then tries again."""
        if self.ec2_launch_template is None:
            return
        data = self.ec2_launch_template.get_version(self.launch_template_version).data
        profile = data.get("IamInstanceProfile") or {}
        try:
            iam_rules.check_profile(profile.get("Name"), profile.get("Arn"))
        except ServiceException as error:
            message = f"You must use a valid fully-formed launch template. {error.message}"
            raise ValidationError(message) from error

    def replace_autoscaling_group_instances(self, count_needed: int, propagated_tags: dict[str, str]) -> None:
        """Launch the missing instances. Without capacity the group tries again later, as the real service does."""
        for _ in range(count_needed):
            try:
                self.launch_one(propagated_tags)
            except Exception as error:  # any error: a group that is not retried would stay empty for ever
                if not isinstance(error, ServiceException):
                    log.exception("group %s could not launch and asks again", self.name)
                here = account.current()
                here.market.timeline.after(here.market.delays.retry, self.heal)
                return

    @property
    def members(self) -> list[LocalInstance]:
        """Return the group's instances; the local cloud's EC2 makes no other kind than its own, which moto's types do
        not say."""
        return [cast(LocalInstance, state.instance) for state in self.instance_states]

    def heal(self) -> None:
        """Bring the group back to its desired capacity, if it still exists and no refresh is about to."""
        if self.autoscaling_backend.autoscaling_groups.get(self.name) is self:
            alive = {member.id for member in self.members if member.alive}
            self.instance_states = [s for s in self.instance_states if s.instance.id in alive]
            extra = any(refresh.active for refresh in self.refreshes)
            if not extra or len(self.instance_states) < (self.desired_capacity or 0):
                self.set_desired_capacity(self.desired_capacity)

    def matches(self, instance: Any) -> bool:
        """Return whether an instance was launched from the template version that the group uses now."""
        template = self.ec2_launch_template
        if template is None:
            return False
        version = template.get_version(self.launch_template_version)
        return self._made_from.get(instance.id) == (template.id, version.number)

    def let_go(self, instance: Any) -> None:
        """Terminate a member without replacing it."""
        self.instance_states = [s for s in self.instance_states if s.instance is not instance]
        instance.terminate()

    def launch_one(self, propagated_tags: dict[str, str]) -> Any:
        """Launch one more member from the template that the group uses now."""
        subnets = self.vpc_zone_identifier.split(",") if self.vpc_zone_identifier else []
        turn = len(self.instance_states)
        template = self.ec2_launch_template
        if template is None:
            raise ValidationError("The local cloud supports groups with a launch template only.")
        version = template.get_version(self.launch_template_version)
        reservation = self.ec2_backend.run_instances(
            version.image_id,
            1,
            None,
            [],
            instance_type=version.instance_type,
            is_instance_type_default=False,
            subnet_id=subnets[turn % len(subnets)] if subnets else None,
            placement=None if subnets else self.availability_zones[turn % len(self.availability_zones)],
            launch_template={"LaunchTemplateId": template.id, "Version": str(version.number)},
            tags={"instance": {**propagated_tags, ASG_NAME_TAG: self.name}},
        )
        instance: Any = reservation.instances[0]
        instance.autoscaling_group = self
        protected = self.new_instances_protected_from_scale_in
        self.instance_states.append(InstanceState(instance, protected_from_scale_in=protected))
        self._made_from[instance.id] = (template.id, version.number)
        return instance


def member_ended(market: LocalMarket, instance_id: str) -> None:
    """Let the group of an ended instance, if it has one, replace it after a delay."""
    for group in list(autoscaling_backends[ACCOUNT][market.region].autoscaling_groups.values()):
        if isinstance(group, LocalGroup) and any(member.id == instance_id for member in group.members):
            market.timeline.after(market.delays.heal, group.heal)


def call_action(self: AutoScalingResponse) -> TYPE_RESPONSE:
    """Carry out one call at a time, because the market's thread changes the same groups."""
    with account.current().market.lock:
        return refusals.call_action(self)
