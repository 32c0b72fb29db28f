"""The effects of a change on the jobs of a cluster and on stored data, in sentences.

Pure: the inputs are the steps, the clouds' kinds of resources, and the number of running jobs, if a store could be
asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from everspot_clouds.base.deletion_rules import CURRENT, DeletionRule
from everspot_clouds.base.resources import FleetKind, ResourceKinds
from everspot_core.cluster.declared import unknown
from everspot_core.counting import counted
from everspot_core.jobs.records import Market

from everspot_review.event_log import LoggedStep
from everspot_review.report import Deed, JobEffect
from everspot_review.values import MISSING, at, split

_DEEDS = (
    (Deed.REPLACE, {"replace", "create-replacement", "delete-replaced", "import-replacement"}),
    (Deed.DELETE, {"delete"}),
    (Deed.FORGET, {"remove-pending-replace"}),
    (Deed.CREATE, {"create"}),
    (Deed.IMPORT, {"import"}),
)
GOES = frozenset({Deed.REPLACE, Deed.DELETE})


@dataclass(frozen=True)
class RunningJobs:
    """Jobs that run on a cluster's instances now, by the market of those."""

    by_market: Mapping[Market, int]

    def on(self, market: Market | None) -> int:
        """Return how many run on instances of a market; of all, if it is not known."""
        return sum(number for name, number in self.by_market.items() if market in (None, name))


def deed(step: LoggedStep) -> Deed:
    """Return the operation on a resource, whatever the number of its steps."""
    return next((deed for deed, ops in _DEEDS if ops & set(step.ops)), Deed.UPDATE)


def effects(
    steps: tuple[LoggedStep, ...], kinds: ResourceKinds, running: RunningJobs | None = None
) -> tuple[JobEffect, ...]:
    """Return the effects of the steps, by resource, the harmful first. `running`: None if no store could be asked."""
    job_effects: list[JobEffect] = []
    new_buckets = _new_buckets(steps, kinds)
    destroyed = all(deed(step) is Deed.DELETE for step in steps if not step.grouping)
    for step in steps:
        if step.idle or step.grouping:
            continue
        if step.type in kinds.fleets:
            job_effects += _of_a_fleet(step, kinds.fleets[step.type], kinds, running)
        if step.type in kinds.templates:
            job_effects += _of_a_template(step, kinds)
        if step.type in kinds.stateful:
            job_effects += _of_what_is_stored(step, kinds)
        if not destroyed:  # of a whole environment, the fleets' own effects say what becomes of the jobs
            job_effects += _of_what_is_needed(step, kinds, running)
        if deed(step) in (Deed.UPDATE, Deed.REPLACE, Deed.CREATE):
            job_effects += [*_sooner_expiries(step, kinds, new_buckets), *_lost_keys(step, kinds)]
        if deed(step) is Deed.UPDATE:
            job_effects += [*_loosened(step), *_harmful_settings(step, kinds)]
    return tuple(sorted(job_effects, key=lambda effect: (not effect.harm, effect.resource)))


def _of_a_fleet(
    step: LoggedStep, kind: FleetKind, kinds: ResourceKinds, running: RunningJobs | None
) -> list[JobEffect]:
    done = deed(step)
    if kinds.schedulers & set(step.parent_types):
        return _of_a_scheduler(step, kind, done)
    if done in GOES and step.old is not None:
        size = at(step.old.inputs, kind.size)
        if size == 0:
            return [_effect(step, f"{_goes(done)}, which has no instances.")]
        if step.old.retained:
            return [_effect(step, f"{_goes(done)} here only: it keeps its instances running, and they cost.")]
        if not kind.delete_ends(step.old.inputs):
            return [_effect(step, f"{_goes(done)}: its instances run on, and cost, until somebody ends them.")]
        return [_ends(step, f"{_goes(done)} and ends its instances", "would be drained", running)]
    if done is not Deed.UPDATE or step.old is None or step.new is None:
        return []
    fleet_effects = _of_a_size(step, kind, running)
    paths = tuple(step.diff)
    if any(_begins(path, kind.template) for path in paths):
        if kind.rolls(step.new.inputs):
            text = "the new template replaces its instances at once, one after another"
            fleet_effects.append(_ends(step, text, "would be drained", running))
        else:
            fleet_effects.append(
                _effect(step, "its new template reaches instances as they are replaced; none is ended for it.")
            )
    pools = [path for path in paths if _begins(path, kind.pools) and not _begins(path, kind.template)]
    if pools:
        fleet_effects.append(_effect(step, "other types or zones: they hold for what is launched from now on."))
    return fleet_effects


def _of_a_size(step: LoggedStep, kind: FleetKind, running: RunningJobs | None) -> list[JobEffect]:
    assert step.old is not None and step.new is not None  # noqa: S101 - an update has both
    before, after = at(step.old.inputs, kind.size), at(step.new.inputs, kind.size)
    if before is MISSING:
        before = at(step.old.outputs, kind.size)
    lower_maximum = _of_a_maximum(step, kind, running)
    if not _is_number(before) or not _is_number(after) or after == before:
        return lower_maximum
    if after > before and lower_maximum:
        return lower_maximum
    if after > before:
        return [_effect(step, f"higher target, {before:g} → {after:g}: nothing that runs is touched.")]
    if not kind.lower_ends(step.new.inputs):
        return [_effect(step, f"lower target, {before:g} → {after:g}: it ends no busy instance.")]
    text = f"lower target, {before:g} → {after:g}: it ends instances of {kind.chosen_by}'s choice at once, busy or not"
    return [_ends(step, text, "may be on them", running)]


def _of_a_maximum(step: LoggedStep, kind: FleetKind, running: RunningJobs | None) -> list[JobEffect]:
    """Return the effect of a lower largest size. An autoscaler may have raised the size since the last update, so the
    number of instances is not known."""
    if not kind.maximum or step.old is None or step.new is None:
        return []
    before, after = at(step.old.inputs, kind.maximum), at(step.new.inputs, kind.maximum)
    if not _is_number(before) or not _is_number(after) or after >= before or not kind.lower_ends(step.new.inputs):
        return []
    text = f"lower maximum, {before:g} → {after:g}: if more run, it ends instances of {kind.chosen_by}'s choice at once"
    return [_ends(step, text, "may be on them", running)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _of_a_scheduler(step: LoggedStep, kind: FleetKind, done: Deed) -> list[JobEffect]:
    if done is Deed.DELETE:
        return [_effect(step, "there is no scheduler then: jobs that run go on, and no other one begins.")]
    changed = step.new is not None and any(_begins(path, kind.template) for path in step.diff)
    if done is Deed.REPLACE or (changed and step.new is not None and kind.rolls(step.new.inputs)):
        return [_effect(step, "the scheduler is replaced: jobs run on, and none is placed until the new one is up.")]
    return []


def _of_a_template(step: LoggedStep, kinds: ResourceKinds) -> list[JobEffect]:
    if deed(step) not in (Deed.UPDATE, Deed.REPLACE):
        return []
    if kinds.schedulers & set(step.parent_types):
        return []
    new_image = any(_begins(path, kinds.templates[step.type].image) for path in step.diff)
    subject = "new image: it" if new_image else "what instances are launched with changes: it"
    return [_effect(step, f"{subject} reaches instances as they are replaced.")]


def _of_what_is_stored(step: LoggedStep, kinds: ResourceKinds) -> list[JobEffect]:
    done, lost = deed(step), kinds.stateful[step.type]
    if done not in GOES or step.old is None:
        return []
    verb = "deleted" if done is Deed.DELETE else "replaced"
    if step.old.retained:
        return [_effect(step, f"{verb} here only: it stays in the cloud, and Pulumi knows nothing of it any more.")]
    path, value = kinds.kept_unless.get(step.type, ("", None))
    if path and at(step.old.inputs, path) != value:
        return [_effect(step, f"{verb}: {lost} stays, since {path} is not {value}.")]
    emptied = kinds.emptied.get(step.type)
    if emptied is not None and step.old.inputs.get(emptied) is not True:
        return [_effect(step, f"{verb}: the cloud refuses that unless it is empty; {lost} would be lost.", harm=True)]
    return [_effect(step, f"{verb}: {lost} would be lost.", harm=True)]


def _of_what_is_needed(step: LoggedStep, kinds: ResourceKinds, running: RunningJobs | None) -> list[JobEffect]:
    """Return the effect of a resource that goes while instances need it: a part of their network, or their role."""
    done, effect = deed(step), kinds.needed.get(step.type)
    if done is Deed.REPLACE:
        effect = effect or kinds.needed_while_there.get(step.type)
    if done not in GOES or step.old is None or step.old.retained or effect is None:
        return []
    verb = "deleted" if done is Deed.DELETE else "replaced"
    if running is None:
        return [_effect(step, f"{verb}: {effect}.", harm=True)]
    if not (number := running.on(None)):
        return [_effect(step, f"{verb}: {effect}; no job runs now.")]
    return [_effect(step, f"{verb}: {effect}; {counted(number, 'job')} may be on them now.", harm=True)]


def _loosened(step: LoggedStep) -> list[JobEffect]:
    """Return the protection that a step removes from a resource, alone or beside other changes."""
    if step.old is None or step.new is None:
        return []
    loosened = []
    if step.old.protected and not step.new.protected:
        loosened.append(_effect(step, "no longer protected: a later change may delete or replace it.", harm=True))
    if step.old.retained and not step.new.retained:
        loosened.append(_effect(step, "no longer kept when it is deleted.", harm=True))
    return loosened


def _new_buckets(steps: tuple[LoggedStep, ...], kinds: ResourceKinds) -> frozenset[str]:
    """Return the names of the buckets that the change creates."""
    created = [step for step in steps if step.type in kinds.emptied and deed(step) is Deed.CREATE]
    return frozenset(str(step.new.inputs.get("bucket")) for step in created if step.new is not None)


def _sooner_expiries(step: LoggedStep, kinds: ResourceKinds, new_buckets: frozenset[str]) -> list[JobEffect]:
    """Return the objects of a bucket that are deleted sooner than before. The cloud applies a rule to objects that are
    there, within about a day. `new_buckets`: names of buckets that are made now and therefore empty."""
    kind = kinds.expiries.get(step.type)
    if kind is None or step.new is None:
        return []
    bucket = at(step.new.inputs, kind.bucket) if kind.bucket else MISSING
    same = step.old is not None and (not kind.bucket or at(step.old.inputs, kind.bucket) == bucket)
    if not same and (not isinstance(bucket, str) or unknown(bucket) or bucket in new_buckets):
        return []
    before = kind.rules(step.old.inputs) if step.old is not None and same else []
    sooner = [rule for rule in kind.rules(step.new.inputs) if not any(earlier.covers(rule) for earlier in before)]
    return [
        _effect(step, _describe_deletion(rule, before), harm=True)
        for rule in sorted(sooner, key=lambda rule: (rule.prefix, rule.timing))
    ]


def _describe_deletion(rule: DeletionRule, before: Sequence[DeletionRule]) -> str:
    """Return the effect of a rule that deletes more, or sooner. `before`: the present rules."""
    subject = "objects" if CURRENT in rule.versions else "earlier versions of objects"
    names = f"below {rule.prefix}" if rule.prefix else "of every name"
    present = [old for old in before if rule.prefix.startswith(old.prefix) and rule.versions & old.versions]
    days = [old.days for old in present if old.days is not None]
    was = (
        f"{min(days):g} before" if days and rule.days is not None else present[0].timing if present else "never before"
    )
    if present and not was.endswith(" before"):
        was = f"before: {was}"
    return f"{subject} {names} are deleted {rule.timing} ({was}), those that are there too."


def _lost_keys(step: LoggedStep, kinds: ResourceKinds) -> list[JobEffect]:
    """Return the keys that a policy no longer lets its holders decrypt with. What is stored under a key stays under
    it, whatever key its bucket has later."""
    read = kinds.readable.get(step.type)
    if read is None or step.old is None or step.new is None:
        return []
    before, after = read(step.old.inputs), read(step.new.inputs)
    if before is None or after is None:
        return []
    return [
        _effect(step, f"it may no longer decrypt with {key}: what that key encrypts cannot be read by it.", harm=True)
        for key in sorted(before)
        if not any(fnmatchcase(key, pattern) for pattern in after)
    ]


def _harmful_settings(step: LoggedStep, kinds: ResourceKinds) -> list[JobEffect]:
    """Return the settings by which a step loses data, or lets a later step lose it."""
    if step.old is None or step.new is None:
        return []
    old, new = step.old.inputs, step.new.inputs
    settings = list(kinds.settings.get(step.type, ()))
    if (emptied := kinds.emptied.get(step.type)) is not None:
        settings.append((emptied, True, "a later deletion of the bucket also deletes all objects in it"))
    texts = [
        f"{path} becomes {str(value).lower()}: {consequence}."
        for path, value, consequence in settings
        if at(new, path) == value and at(old, path) != value
    ]
    texts += [
        f"{path} becomes false: {consequence}."
        for path, consequence in kinds.switched_off.get(step.type, ())
        if at(new, path) is False and at(old, path) is True
    ]
    if (kind := kinds.retentions.get(step.type)) is not None:
        before, after = (kind.default if at(side, kind.path) is MISSING else at(side, kind.path) for side in (old, new))
        if _is_number(before) and _is_number(after) and after < before:
            texts.append(
                f"{kind.path}: what is deleted can be restored for {after:g} {kind.unit}, instead of {before:g}."
            )
    return [_effect(step, text, harm=True) for text in texts]


def _goes(done: Deed) -> str:
    return "replaces the fleet" if done is Deed.REPLACE else "deletes the fleet"


def _ends(step: LoggedStep, cause: str, consequence: str, running: RunningJobs | None) -> JobEffect:
    """Return the effect that instances end, with the jobs on them, as far as known: without jobs, nothing is harmed
    now."""
    if running is None:
        return _effect(step, f"{cause}: jobs running on them {consequence}.", harm=True)
    market = next((market for market in Market if step.name.endswith(f"-{market.value}")), None)
    number = running.on(market)
    if not number:
        return _effect(step, f"{cause}; no job runs on them now.")
    upto = "" if market is not None else "up to "
    return _effect(step, f"{cause}: {upto}{counted(number, 'job')} running now {consequence}.", harm=True)


def _begins(path: str, beginnings: tuple[str, ...]) -> bool:
    """Return whether a path is one of those or is below one."""
    keys = split(path)
    return any(keys[: len(begin)] == begin for begin in map(split, beginnings))


def _effect(step: LoggedStep, text: str, *, harm: bool = False) -> JobEffect:
    return JobEffect(resource=step.name, text=text, harm=harm)
