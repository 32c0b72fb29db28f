"""Checks of `everspot doctor` that ask Google Cloud: credentials, clock, why a group lacks instances, and quotas."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.capacity.market import Market
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest

from everspot_clouds.base import Check, CloudError, Trouble, Verdict, image_check
from everspot_clouds.gcp.quota_claims import LAUNCHED, QuotaClaim, claims, most
from everspot_clouds.gcp.quotas import ALL_REGIONS, CONSOLE, PER_FAMILY, list_metrics, reaches
from everspot_clouds.gcp.rules import CLUSTER_LABEL

if TYPE_CHECKING:
    from everspot_clouds.gcp.http_api import Api

SKEW = timedelta(seconds=60)
STS = "sts.googleapis.com"
"""The Security Token Service, which is off in a new project."""
_MATTER = {Trouble.CAPACITY: "capacity", Trouble.QUOTA: "quota", Trouble.CREDENTIALS: "credentials"}
"""The group of checks that an error belongs to. An error that is not listed belongs to the group of the check that met
it."""


def cloud_checks(region: str | None, manifest: Manifest | None, catalogue: Catalogue, clock: Clock) -> list[Check]:
    """Check credentials first, and the rest only if they work. Without google-auth nothing is asked. `manifest` None:
    it cannot be read."""
    if (checks := client_missing()) is not None:
        return checks
    where = (manifest.region if manifest is not None else "") or region or ""

    def make_checks(api: "Api", guarded: Guarded) -> list[Check]:
        checks = guarded("credentials", "credentials", lambda: credential_checks(api))
        if checks[0].verdict is Verdict.OK and manifest is not None and where:
            checks += guarded("image", "user", lambda: _images(api, where, manifest.cluster))
            checks += guarded("job role", "user", lambda: _job_role(api, manifest.job_role))
            checks += guarded("fleet", "capacity", lambda: _groups(api, where, manifest.cluster))
            checks += guarded("quota", "quota", lambda: quota_checks(api, where, manifest, catalogue))
        return checks

    return checked_api(manifest.account if manifest is not None else "", clock, make_checks)


def client_missing() -> list[Check] | None:
    """Return the only check that can be made without google-auth; None if it is installed."""
    if find_spec("google") is not None and find_spec("google.auth") is not None:
        return None
    fix = "pip install 'everspot[cli]'"
    return [Check("credentials", "credentials", Verdict.SKIP, "google-auth is not installed", fix)]


Guarded = Callable[[str, str, Callable[[], list[Check]]], list[Check]]
"""Makes a check, by its name and its group, and returns Google's refusal as a check if it cannot be made."""


def checked_api(project: str, clock: Clock, make_checks: Callable[["Api", Guarded], list[Check]]) -> list[Check]:
    """Open the API of a project, and return the checks that are made with it. `project` empty: the environment's."""
    import requests
    from google.auth.exceptions import GoogleAuthError

    from everspot_clouds.gcp.errors import ApiError, fix, trouble
    from everspot_clouds.gcp.http_api import open_api

    def guarded(name: str, group: str, check: Callable[[], list[Check]]) -> list[Check]:
        try:
            return check()
        except (ApiError, requests.RequestException, GoogleAuthError) as error:
            kind = trouble(error)
            verdict = Verdict.FAIL if group == "credentials" else Verdict.SKIP
            return [Check(_MATTER.get(kind, group), name, verdict, str(error), fix(error))]

    try:
        api = open_api(clock, project)
    except CloudError as error:
        return [Check("credentials", "credentials", Verdict.FAIL, str(error), error.fix)]
    try:
        return make_checks(api, guarded)
    finally:
        api.close()


def credential_checks(api: "Api") -> list[Check]:
    """Return the checks of the project, the caller's identity, and of this machine's clock."""
    project = api.get("compute", f"projects/{api.project}")
    identity = api.identity()
    detail = f"project {project.get('name', api.project)}{f' as {identity}' if identity else ''}"
    checks = [Check("credentials", "credentials", Verdict.OK, detail)]
    if api.date:
        # The service's clock against this machine's: both real time, whatever the market's time is.
        skew = abs(datetime.now(UTC) - parsedate_to_datetime(api.date))
        offset = f"{skew.total_seconds():.0f} s from the service's"
        verdict = Verdict.OK if skew < SKEW else Verdict.FAIL
        checks.append(Check("clock", "clock", verdict, offset, "set this machine's clock: tokens will be refused"))
    return checks


def job_token_checks(api: "Api") -> list[Check]:
    """Return the check of the service at which agents limit their token to a job."""
    state = api.get("serviceusage", f"projects/{api.project}/services/{STS}").get("state")
    if state == "ENABLED":
        return [Check("user", "job tokens", Verdict.OK, f"{STS} is on")]
    detail = f"{STS} is off in project {api.project}, so that no job can begin"
    fix = f"`gcloud services enable {STS} --project {api.project}`, or pulumi up of the account stack"
    return [Check("user", "job tokens", Verdict.FAIL, detail, fix)]


def _job_role(api: "Api", role: str | None) -> list[Check]:
    """Return the checks of what limits a job's token. `role`: None with `jobRole: false`, and in clusters of an earlier
    release."""
    from everspot_clouds.gcp.errors import ApiError

    if role is None:
        detail = "jobs have all permissions of the agents: the cluster has no role for them"
        return [Check("user", "job role", Verdict.WARN, detail, "leave out `jobRole: false`, then pulumi up")]
    try:
        exists = not api.get("iam", role).get("deleted")
    except ApiError as error:
        if not error.missing:
            raise
        exists = False
    if not exists:
        detail = f"{role} does not exist, so that no job can begin"
        return [Check("user", "job role", Verdict.FAIL, detail, "pulumi up, which makes it again")]
    return [Check("user", "job role", Verdict.OK, role), *job_token_checks(api)]


def _images(api: "Api", region: str, cluster: str) -> list[Check]:
    """Return one check for each image that the cluster's templates name. None without a template."""
    from everspot_clouds.gcp import groups

    users: dict[str, list[str]] = {}
    for name, image in groups.images(api, region, cluster):
        users.setdefault(image, []).append(name)
    return [_image(api, image, names) for image, names in sorted(users.items())]


def _image(api: "Api", image: str, templates: Sequence[str]) -> Check:
    from everspot_clouds.gcp.errors import ApiError

    label = f"{image}, of {', '.join(sorted(templates))}"
    try:
        state_answer = api.get("compute", image)
    except ApiError as error:
        if not error.missing:
            raise
        return image_check(f"{label}, does not exist any more")
    state = str((state_answer.get("deprecated") or {}).get("state") or "ACTIVE")
    # Images, `deprecated.state`: a DEPRECATED one may be used, with a warning; an OBSOLETE or DELETED one may not.
    if state in ("OBSOLETE", "DELETED"):
        return image_check(f"{label}, is {state}")
    if (status := str(state_answer.get("status") or "READY")) != "READY":
        return image_check(f"{label}, is {status}")
    if state == "DEPRECATED":
        words = f"{label}, is deprecated: instances still start from it, and its family names another, or none"
        return Check("user", "image", Verdict.WARN, words, "bake a newer one and run pulumi up")
    return Check("user", "image", Verdict.OK, label)


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
        label = f"{group['name']}: {has} of {target}"
        if has >= target:
            checks.append(Check("capacity", "fleet", Verdict.OK, label))
            continue
        failures = {
            failure.code: failure for failure in errors.read_failures(groups.failures(api, region, group["name"]))
        }
        if not failures:
            checks.append(Check("capacity", "fleet", Verdict.WARN, label, errors.FIX[Trouble.CAPACITY]))
        for failure in failures.values():
            kind = errors.classify_code(failure.code) or Trouble.REQUEST
            words = " ".join(part for part in (label, failure.code, failure.metric, failure.message) if part)
            checks.append(Check(_MATTER.get(kind, "user"), "fleet", Verdict.WARN, words, errors.FIX[kind]))
    return checks


def quota_checks(api: "Api", region: str, manifest: Manifest, catalogue: Catalogue) -> list[Check]:
    """Return a check for each quota that the cluster uses at its largest; no check without declared capacity."""
    standing, elastic = manifest.standing, manifest.elastic
    if standing is None and elastic is None:
        return []
    limits = _limits(api.get("compute", f"projects/{api.project}/regions/{region}"))
    everywhere = _limits(api.get("compute", f"projects/{api.project}"))
    limits |= {ALL_REGIONS: everywhere[ALL_REGIONS]} if ALL_REGIONS in everywhere else {}
    counts = {Market.ON_DEMAND: standing.on_demand_units, Market.SPOT: standing.spot_units} if standing else {}
    parts = claims(
        manifest.scheduler_type or "",
        counts,
        standing.weights if standing is not None else (),
        elastic.max_instances if elastic is not None else 0,
        elastic.markets if elastic is not None else (),
        elastic.types if elastic is not None else (),
    )
    lacking = _lacking(parts, catalogue, limits)
    by_metric = most(parts, catalogue.types, limits)
    checks = [
        _check(metric, shares, limits.get(metric), metric in lacking) for metric, shares in sorted(by_metric.items())
    ]
    return [*checks, *_unstated(parts, limits)]


def _unstated(parts: Sequence[QuotaClaim], limits: Mapping[str, float]) -> list[Check]:
    """Return a check for the types whose quota neither the API's list nor the region names: they are compared with
    none."""
    pairs = {(name, market) for part in parts for name in part.types for market in part.markets}
    unstated = sorted({name for name, market in pairs if not list_metrics(name, market, limits)})
    if not unstated:
        return []
    detail = f"{', '.join(unstated)}: the region states no quota of these; {PER_FAMILY} are not compared"
    return [Check("quota", "quota", Verdict.SKIP, detail)]


def _lacking(parts: Sequence[QuotaClaim], catalogue: Catalogue, limits: Mapping[str, float]) -> set[str]:
    """Return the metrics whose limits exclude some part with every one of its types. Launches make do with the
    remaining quota: only if nothing fits it is a failure."""
    lacking, types = set(), catalogue.types
    for part in parts:
        quota_reaches = [
            each for market in part.markets for each in reaches(part.count, part.types, types, market, limits)
        ]
        fits = any(
            each.limit is None or (each.limit > 0 if part.part == LAUNCHED else each.enough) for each in quota_reaches
        )
        if quota_reaches and not fits:
            lacking |= {each.metric for each in quota_reaches}
        if limits.get(ALL_REGIONS, 1) <= 0 and any(types[name].gpus for name in part.types if name in types):
            lacking.add(ALL_REGIONS)
    return lacking


def _limits(answer: Mapping[str, Any]) -> dict[str, float]:
    return {
        quota["metric"]: float(quota.get("limit") or 0) for quota in answer.get("quotas") or () if "metric" in quota
    }


def _check(metric: str, shares: Mapping[str, float], limit: float | None, lacking: bool) -> Check:
    if limit is None:
        return Check("quota", "quota", Verdict.SKIP, f"{metric}: not told by the region")
    parts = " and ".join(f"{part} {units:g}" for part, units in shares.items())
    detail = f"{metric}: {limit:g}; the cluster takes {sum(shares.values()):g} at most: {parts}"
    if limit >= sum(shares.values()):
        return Check("quota", "quota", Verdict.OK, detail)
    fix = f"ask for more: {CONSOLE.format(metric=metric)}"
    return Check("quota", "quota", Verdict.FAIL if lacking else Verdict.WARN, detail, fix)
