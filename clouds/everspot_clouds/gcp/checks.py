"""Checks of `everspot doctor` that ask Google Cloud: credentials, clock, why a group lacks instances, and quotas."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from everspot_core.catalogue import Catalogue
from everspot_core.clock import Clock
from everspot_core.counting import counted
from everspot_core.manifest import Manifest
from everspot_core.market import Market

from everspot_clouds.base import Check, CloudError, Trouble, Verdict
from everspot_clouds.gcp.quotas import ALL_REGIONS, CONSOLE, QuotaReach, reaches
from everspot_clouds.gcp.rules import CLUSTER_LABEL

if TYPE_CHECKING:
    from everspot_clouds.gcp.rest import Api

SKEW = timedelta(seconds=60)
_STANDING = "standing instance"  # a group counts machines
_MATTER = {Trouble.CAPACITY: "capacity", Trouble.QUOTA: "quota", Trouble.CREDENTIALS: "credentials"}
"""The group of checks that an error belongs to. An error that is not listed belongs to the group of the check that met
it."""


def cloud_checks(region: str | None, manifest: Manifest | None, catalogue: Catalogue, clock: Clock) -> list[Check]:
    """Check credentials first, and the rest only if they work. Without google-auth nothing is asked. `manifest` None:
    it cannot be read."""
    try:
        import requests
        from google.auth.exceptions import GoogleAuthError

        from everspot_clouds.gcp.errors import ApiError, fix, trouble
        from everspot_clouds.gcp.rest import open_api
    except ImportError:
        return [
            Check(
                "credentials", "credentials", Verdict.SKIP, "google-auth is not installed", "pip install everspot[cli]"
            )
        ]
    try:
        api = open_api(clock, manifest.account if manifest is not None else "")
    except CloudError as error:
        return [Check("credentials", "credentials", Verdict.FAIL, str(error), error.fix)]

    def asked(name: str, group: str, ask: Callable[[], list[Check]]) -> list[Check]:
        try:
            return ask()
        except (ApiError, requests.RequestException, GoogleAuthError) as error:
            kind = trouble(error)
            found = Verdict.FAIL if group == "credentials" else Verdict.SKIP
            return [Check(_MATTER.get(kind, group), name, found, str(error), fix(error))]

    checks = asked("credentials", "credentials", lambda: _credentials(api))
    where = (manifest.region if manifest is not None else "") or region or ""
    if checks[0].verdict is Verdict.OK and manifest is not None and where:
        checks += asked("fleet", "capacity", lambda: _groups(api, where, manifest.cluster))
        checks += asked("quota", "quota", lambda: _quotas(api, where, manifest, catalogue))
    api.close()
    return checks


def _credentials(api: "Api") -> list[Check]:
    project = api.get("compute", f"projects/{api.project}")
    who = api.identity()
    said = f"project {project.get('name', api.project)}{f' as {who}' if who else ''}"
    checks = [Check("credentials", "credentials", Verdict.OK, said)]
    if api.date:
        # The service's clock against this machine's: both real time, whatever the market's time is.
        skew = abs(datetime.now(UTC) - parsedate_to_datetime(api.date))
        told = f"{skew.total_seconds():.0f} s from the service's"
        verdict = Verdict.OK if skew < SKEW else Verdict.FAIL
        checks.append(Check("clock", "clock", verdict, told, "set this machine's clock: tokens will be refused"))
    return checks


def _groups(api: "Api", region: str, cluster: str) -> list[Check]:
    from everspot_clouds.gcp import errors, groups

    own = groups.of_cluster(api, region, cluster)
    if not own:
        words = f"no instance group's template is labelled {CLUSTER_LABEL}={cluster}"
        return [Check("user", "fleet", Verdict.WARN, words, "pulumi up")]
    checks = []
    for group in own:
        target = int(group.get("targetSize") or 0)
        has = groups.running(api, region, group["name"])
        said = f"{group['name']}: {has} of {target}"
        if has >= target:
            checks.append(Check("capacity", "fleet", Verdict.OK, said))
            continue
        why = {one.code: one for one in errors.said_by(groups.failures(api, region, group["name"]))}
        if not why:
            checks.append(Check("capacity", "fleet", Verdict.WARN, said, errors.FIX[Trouble.CAPACITY]))
        for one in why.values():
            kind = errors.trouble_of(one.code) or Trouble.REQUEST
            words = " ".join(word for word in (said, one.code, one.metric, one.message) if word)
            checks.append(Check(_MATTER.get(kind, "user"), "fleet", Verdict.WARN, words, errors.FIX[kind]))
    return checks


def _quotas(api: "Api", region: str, manifest: Manifest, catalogue: Catalogue) -> list[Check]:
    """One check for each quota that counts for the groups, and for what may be launched on top of them. None for a
    cluster that declares neither."""
    standing, elastic = manifest.standing, manifest.elastic
    if standing is None and elastic is None:
        return []
    limits = _limits(api.get("compute", f"projects/{api.project}/regions/{region}"))
    everywhere = _limits(api.get("compute", f"projects/{api.project}")).get(ALL_REGIONS)
    wanted: list[tuple[str, int, list[str], Market]] = []
    if standing is not None:
        for market, units in ((Market.ON_DEMAND, standing.on_demand_units), (Market.SPOT, standing.spot_units)):
            wanted.append((_STANDING, units, list(standing.weights), market))
    if elastic is not None:
        wanted += [("launched instance", elastic.max_instances, elastic.types, market) for market in elastic.markets]
    checks = []
    for noun, count, types, market in wanted:
        if count > 0:
            found = reaches(count, types, catalogue.types, market, limits)
            # What may be launched makes do with what there is: only where nothing fits at all it is a failure.
            suffices = any(r.enough if noun == _STANDING else (r.limit is None or r.limit > 0) for r in found)
            checks += [_check(count, noun, reach, suffices) for reach in found]
    gpus = any(
        catalogue.types[n].gpus for _, count, types, _ in wanted for n in types if count and n in catalogue.types
    )
    if everywhere is not None and everywhere <= 0 and gpus:
        fix = f"ask for more: {CONSOLE.format(metric=ALL_REGIONS)}"
        checks.append(Check("quota", "quota", Verdict.FAIL, f"{ALL_REGIONS}: {everywhere:g}", fix))
    return checks


def _limits(answer: Mapping[str, Any]) -> dict[str, float]:
    return {
        quota["metric"]: float(quota.get("limit") or 0) for quota in answer.get("quotas") or () if "metric" in quota
    }


def _check(count: int, noun: str, reach: QuotaReach, suffices: bool) -> Check:
    types = ", ".join(reach.types)
    if reach.limit is None:
        return Check("quota", "quota", Verdict.SKIP, f"{reach.metric}: not told by the region")
    verb = "takes" if count == 1 else "take"
    said = f"{reach.metric}: {reach.limit:g}; {counted(count, noun)} of {types} {verb} {reach.least:g}"
    if reach.enough:
        return Check("quota", "quota", Verdict.OK, said)
    fix = f"ask for more: {CONSOLE.format(metric=reach.metric)}"
    return Check("quota", "quota", Verdict.WARN if suffices else Verdict.FAIL, said, fix)
