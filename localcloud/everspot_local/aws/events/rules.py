"""Stands in for EventBridge's quotas and checks of rules and their targets.

Lengths and characters of names are in EventBridge's own model: see `model_limits`. Like EventBridge, it takes a target
that does not exist, and drops what is sent there.
"""

from collections.abc import Iterator
from typing import Any

from moto.core.resource_tagging import TaggedResource
from moto.events.models import EventsBackend

from everspot_local.aws.refusals import Refused
from everspot_local.aws.strict import strict

TARGETS = 5  # "Amazon EventBridge quotas": targets per rule
PATTERN = 2048  # the same page: event pattern size
TAGS = 50

_put_rule = EventsBackend.put_rule
_put_targets = EventsBackend.put_targets
_tag_resource = EventsBackend.tag_resource
_iter_tagged_resources = EventsBackend.iter_tagged_resources


def put_rule(self: EventsBackend, name: str, *words: Any, **more: Any) -> Any:
    """Create a rule as moto does, within EventBridge's limits on its pattern and its tags."""
    if strict():
        if len(more.get("event_pattern") or "") > PATTERN:
            raise Refused("LimitExceededException", f"EventPattern is larger than the quota of {PATTERN} characters.")
        _check_tags(more.get("tags") or [])
    return _put_rule(self, name, *words, **more)


def put_targets(self: EventsBackend, name: str, event_bus_arn: str | None, targets: list[dict[str, Any]]) -> None:
    """Add targets as moto does, within the quota, and only to a rule that exists."""
    rule = self._get_event_bus(self._normalize_event_bus_arn(event_bus_arn)).rules.get(name)
    if strict() and rule is not None:
        ids = {target["Id"] for target in [*rule.targets, *targets]}
        if len(ids) > TARGETS:
            raise Refused("LimitExceededException", "The requested resource exceeds the maximum number allowed.")
    _put_targets(self, name, event_bus_arn, targets)


def tag_resource(self: EventsBackend, arn: str, tags: dict[str, str]) -> None:
    """Add tags as moto does, within the limit on all tags together."""
    if strict():
        current_tags = {tag["Key"]: tag["Value"] for tag in self.tagger.list_tags_for_resource(arn)["Tags"]}
        _check_tags([{"Key": key, "Value": value} for key, value in {**current_tags, **tags}.items()])
    _tag_resource(self, arn, tags)


def iter_tagged_resources(self: EventsBackend) -> Iterator[TaggedResource]:
    """Yield buses as moto does, and rules, which GetResources knows as well."""
    yield from _iter_tagged_resources(self)
    for rule in (rule for bus in self.event_buses.values() for rule in bus.rules.values()):
        yield TaggedResource(rule.arn, self.tagger.get_tag_dict_for_resource(rule.arn), "events:rule")


def _check_tags(tags: list[dict[str, str]]) -> None:
    """Refuse keys that begin with `aws:` and more than 50 tags: "Tag your EventBridge resources"."""
    if len(tags) > TAGS or any(tag["Key"].lower().startswith("aws:") for tag in tags):
        raise Refused("ValidationException", f"At most {TAGS} tags, and no key that begins with aws:, are allowed.")
