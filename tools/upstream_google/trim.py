"""Copy the upstream Google provider's source with the services in use only: half the binary, a third of its types.

usage: trim.py MODULE_DIR OUT_DIR      (MODULE_DIR: where Go keeps the module's own source)

One generated file decides what is linked: every service registers itself where that file imports it. Beside it, five
things are touched, each found by a text that must be there exactly once, so that another version fails loudly:

- `preemption_notice_duration` is in Compute's API and in the beta provider that pulumi-gcp wraps, and not yet in this
  one. It is made after the model of `max_run_duration`, which has the same shape, in both instance templates.
- Waits are the cloud's time, and in a local cloud that runs faster: between two looks at an operation, and where
  upstream waits for what it wrote to be known everywhere. How often it looks, and for what, stays upstream's.
- When upstream starts it asks Google who its token belongs to, whatever endpoints it was given, and logs the answer.
  With a local cloud nobody outside is asked.
- Upstream's label for the resources that it created is pulumi-gcp's.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from upstream_aws.trim import MARKET_TIME, UnknownForm

# What the components declare. What these import comes along.
SERVICES = frozenset(
    {"billingbudgets", "compute", "kms", "logging", "monitoring", "pubsub", "resourcemanager", "secretmanager"}
    | {"storage"}
)
REGISTER = Path("google/provider/provider_register_services.go")
COMPUTE = Path("google/services/compute")
TEMPLATES = ("resource_compute_instance_template.go", "resource_compute_region_instance_template.go")
NOTICE = {
    '"max_run_duration"': '"preemption_notice_duration"',
    '"scheduling.0.max_run_duration"': '"scheduling.0.preemption_notice_duration"',
    '"maxRunDuration"': '"preemptionNoticeDuration"',
    "transformedMaxRunDuration": "transformedPreemptionNoticeDuration",
}
RUN = {
    **dict.fromkeys(TEMPLATES, ('"max_run_duration": {',)),
    "compute_instance_helpers.go": (
        'if v, ok := original["max_run_duration"]; ok {',
        'if maxRun, ok := resp["maxRunDuration"].(map[string]interface{}); ok {',
    ),
    "compute_instance_http_helpers.go": ('if maxDurRaw, ok := resp["maxRunDuration"]; ok && maxDurRaw != nil {',),
}
"""What is made twice: a schema, one way to send, two to read (the regional template has one of its own)."""
KEY = '\t\t"scheduling.0.max_run_duration",\n'
CONFIG = Path("google/transport/config.go")
LABEL = ('AttributionKey = "goog-terraform-provisioned"', 'AttributionKey = "goog-pulumi-provisioned"')
IDENTITIES = "\terr = c.logGoogleIdentities(ctx)\n\tif err != nil {\n\t\treturn err\n\t}\n"
OPERATION, POLICY = Path("google/tpgresource/common_operation.go"), Path("google/tpgiamresource/iam.go")
ACCOUNT = Path("google/services/resourcemanager/resource_google_service_account.go")
# File, what it says, how often, and what it says here.
WAITS = (
    (OPERATION, "PollInterval: pollInterval,", 1, "PollInterval: transport_tpg.MarketTime(pollInterval),"),
    (POLICY, "time.Sleep(backoff)", 3, "time.Sleep(transport_tpg.MarketTime(backoff))"),
    (POLICY, "time.Sleep(fetchBackoff)", 1, "time.Sleep(transport_tpg.MarketTime(fetchBackoff))"),
    (ACCOUNT, "time.Sleep(10 * time.Second)", 1, "time.Sleep(transport_tpg.MarketTime(10 * time.Second))"),
    (ACCOUNT, "time.Sleep(time.Second * 5)", 1, "time.Sleep(transport_tpg.MarketTime(5 * time.Second))"),
)


def copy(module: Path, out: Path) -> None:
    """Copy the module without its pages, examples and tests, and without the read-only modes of Go's module cache."""
    shutil.rmtree(out, ignore_errors=True)
    skip = shutil.ignore_patterns("website", "examples", "test-fixtures", "*_test.go", "CHANGELOG*")
    shutil.copytree(module, out, copy_function=shutil.copyfile, ignore=skip)
    for path in [out, *out.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def keep_services(source: str) -> str:
    """Drop the import of every service that is not kept.

    Raises:
        UnknownForm: a service to keep is not there.
    """
    lines, services = [], set()
    for line in source.split("\n"):
        match = re.search(r'^\s*_ ".*/google/services/(\w+)"', line)
        if match is None or match.group(1) in SERVICES:
            lines.append(line)
            services.add(match and match.group(1))
    if not services >= SERVICES:
        raise UnknownForm(f"{REGISTER} names no {sorted(SERVICES - services)}")
    return "\n".join(lines)


def block(source: str, start: str, where: Path) -> str:
    """Return the lines from `start`, which ends with a brace and must be there once, to the one that closes it.

    Raises:
        UnknownForm: it is not there once, or its brace is not closed.
    """
    if source.count(start) != 1:
        raise UnknownForm(f"{where} has {start!r} {source.count(start)} times, not once")
    at, depth = source.index(start), 0
    for end in range(at + len(start) - 1, len(source)):
        depth += {"{": 1, "}": -1}.get(source[end], 0)
        if depth == 0:
            return source[at : source.index("\n", end) + 1]
    raise UnknownForm(f"{where}: what begins with {start!r} does not end")


def twin(text: str) -> str:
    """Return a text that speaks of the longest run as one that speaks of the notice."""
    for old, new in NOTICE.items():
        text = text.replace(old, new)
    return text


def notice(out: Path) -> None:
    """Teach both templates the notice: its schema, how it is sent, and how it is read, which each does in its own way.

    Raises:
        UnknownForm: the source does not look as expected.
    """
    for name, starts in RUN.items():
        path = out / COMPUTE / name
        for start in starts:
            schema = block(path.read_text(), start, path)
            replace(path, schema, 1, schema + twin(schema))
    replace(out / COMPUTE / TEMPLATES[0], KEY, 1, KEY + twin(KEY))


def replace(path: Path, old: str, times: int, new: str) -> None:
    """Replace a text in a file.

    Raises:
        UnknownForm: it is not there so many times.
    """
    source = path.read_text()
    if source.count(old) != times:
        raise UnknownForm(f"{path.name} has {old!r} {source.count(old)} times, not {times}")
    path.write_text(source.replace(old, new))


def wait_in_market_time(out: Path) -> None:
    """Let upstream's waits last as long as they do by the cloud's clock.

    Raises:
        UnknownForm: the source does not look as expected.
    """
    own = MARKET_TIME.replace("package backoff", "package transport").replace("marketTime", "MarketTime")
    (out / CONFIG).with_name("market_time.go").write_text(own.lstrip())
    for path, old, times, new in WAITS:
        replace(out / path, old, times, new)


def main() -> None:
    """Write the trimmed copy."""
    module, out = Path(sys.argv[1]), Path(sys.argv[2])
    copy(module, out)
    (out / REGISTER).write_text(keep_services((out / REGISTER).read_text()))
    notice(out)
    wait_in_market_time(out)
    replace(out / CONFIG, IDENTITIES, 1, "")
    replace(out / CONFIG, LABEL[0], 1, LABEL[1])


if __name__ == "__main__":
    main()
