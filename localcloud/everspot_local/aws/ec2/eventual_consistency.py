"""Stands in for EC2's eventual consistency: descriptions show an instance and its tags only
some seconds after its launch. Ids that cannot be any instance's are refused as such.

EC2 Developer Guide, "Eventual consistency in the Amazon EC2 API": an id that RunInstances or CreateFleet has just
answered may not be found yet. Only descriptions of new instances lag here; the end of an instance shows immediately.
"""

import re
from collections.abc import Iterable
from typing import Any

from moto.ec2.exceptions import EC2ClientError, InvalidInstanceIdError

from everspot_local.aws import account
from everspot_local.aws.strict import strict

_ID = re.compile(r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})")


def visible(instance: Any) -> bool:
    """Return whether descriptions show the instance by now."""
    here = account.current()
    delay = here.market.pool_delays(instance.machine.pool).visible
    return not strict() or here.market.clock.now() >= instance.launch_time + delay


def check_form(ids: Iterable[str]) -> None:
    """Refuse ids that no instance can have: one is `i-` and 8 or 17 hexadecimal digits (EC2 User Guide, "Resource
    IDs")."""
    for each in ids if strict() else ():
        if not _ID.fullmatch(each):
            raise EC2ClientError("InvalidInstanceID.Malformed", f'Invalid id: "{each}"')


def check_ids(backend: Any, ids: Iterable[str]) -> None:
    """Refuse ids that no instance can have, and those of instances that are too new to be found, as EC2 does."""
    check_form(ids)
    requested_ids = set(ids)
    young = [i.id for i in backend.all_instances() if i.id in requested_ids and not visible(i)]
    if young:
        raise InvalidInstanceIdError(young)


def visible_tags(backend: Any, tags: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the tags without those of instances that are too new to be shown."""
    young = {i.id for i in backend.all_instances() if not visible(i)}
    return [tag for tag in tags if tag["resource_id"] not in young]


def only_visible(reservations: list[Any]) -> list[Any]:
    """Return the reservations that have instances which descriptions show by now. Others are taken out of the given
    reservations, which have to be copies, as moto's descriptions are."""
    for reservation in reservations:
        reservation.instances = [i for i in reservation.instances if visible(i)]
    return [r for r in reservations if r.instances]
