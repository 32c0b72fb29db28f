"""Copy the upstream AWS provider's source without the services that nothing here uses: 6 minutes of build, not 45.

usage: trim.py MODULE_DIR OUT_DIR      (MODULE_DIR: where Go keeps the module's own source)

Two generated files decide what is linked: the list of service packages and the list of client accessors. Both are
filtered by name. One other line is changed, upstream's wait before it looks again: five minutes for a deleted fleet,
fifteen times up to ten seconds for a deleted queue. That is time that the cloud needs, and in a local cloud the cloud's
time runs faster. How often it looks, and for what, stays upstream's.
"""

import re
import shutil
import sys
from pathlib import Path

# What the components declare or ask for, and what these services reach into themselves: S3 reads bucket tags through
# S3 Control, Auto Scaling looks at load balancers.
SERVICES = frozenset(
    {
        "autoscaling",
        "budgets",
        "ce",
        "cloudwatch",
        "ec2",
        "eks",
        "elb",
        "elbv2",
        "events",
        "iam",
        "kms",
        "logs",
        "meta",
        "s3",
    }
    | {"s3control", "servicequotas", "sns", "sqs", "ssm", "sts"}
)
PACKAGES = Path("internal/provider/sdkv2/service_packages_gen.go")
CLIENTS = Path("internal/conns/awsclient_gen.go")
BACKOFF = Path("internal/backoff/backoff.go")
WAIT = ("return time.After(d)", "return time.After(marketTime(d))")
MARKET_TIME = """
package backoff

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// Between two looks at least this passes, however fast the market is: the local cloud has other work to do.
const leastWait = 200 * time.Millisecond

// marketTime is how long a span of the cloud's time takes here: EVERSPOT_CLOCK is "<speed>@<epoch>", or unset.
func marketTime(span time.Duration) time.Duration {
	speed, _, _ := strings.Cut(os.Getenv("EVERSPOT_CLOCK"), "@")
	if factor, err := strconv.ParseFloat(speed, 64); err == nil && factor > 1 {
		return min(span, max(leastWait, time.Duration(float64(span)/factor)))
	}
	return span
}
"""


class UnknownForm(RuntimeError):
    """The upstream source does not look as this script expects: another version needs another script."""


def copy(module: Path, out: Path) -> None:
    """Copy the module, without the read-only modes of Go's module cache."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(module, out, copy_function=shutil.copyfile)
    for path in [out, *out.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def keep_packages(source: str) -> str:
    """Drop the import and the entry of every service package that is not kept."""
    lines, packages = [], set()
    for line in source.split("\n"):
        imported = re.search(r'internal/service/([a-z0-9_]+)"', line)
        match = imported or re.match(r"\s*(\w+)\.ServicePackage\(ctx\),", line)
        if match is None or match.group(1) in SERVICES:
            lines.append(line)
            packages.add(match and match.group(1))
    if not packages >= SERVICES:
        raise UnknownForm(f"{PACKAGES} names no {sorted(SERVICES - packages)}")
    return "\n".join(lines)


def clients_in_use(out: Path) -> set[str]:
    """Return the names of the clients that the source calls for, apart from the services left out."""
    used: set[str] = set()
    for path in (out / "internal").rglob("*.go"):
        parts = path.relative_to(out).parts
        dropped = parts[1] == "service" and parts[2] not in SERVICES
        if not dropped and path != out / CLIENTS and not path.name.endswith("_test.go"):
            used |= set(re.findall(r"\.(\w+)Client\(ctx", path.read_text()))
    return used


def keep_clients(source: str, used: set[str]) -> str:
    """Drop the accessor and the import of every client that nothing calls for."""
    head, first, body = source.partition("\nfunc (c *AWSClient)")
    if not first:
        raise UnknownForm(f"{CLIENTS} has no accessors")
    accessors = re.findall(r"\nfunc \(c \*AWSClient\) (\w+)\((.*?\n}\n)", first + body, flags=re.S)
    methods = "".join(
        f"\nfunc (c *AWSClient) {name}({method}"
        for name, method in accessors
        if not name.endswith("Client") or name.removesuffix("Client") in used
    )
    imports = []
    for line in head.split("\n"):
        client = re.match(r'\t(?:(\w+) )?"github.com/aws/aws-sdk-go-v2/service/(\w+)"', line)
        if client is None or re.search(rf"\b{client.group(1) or client.group(2)}\.", methods):
            imports.append(line)
    return "\n".join(imports) + methods


def wait_in_market_time(source: str) -> str:
    """Let the waits between two looks last as long as they do by the cloud's clock."""
    if source.count(WAIT[0]) != 1:
        raise UnknownForm(f"{BACKOFF} does not say {WAIT[0]!r} once")
    return source.replace(*WAIT)


def main() -> None:
    """Write the trimmed copy."""
    module, out = Path(sys.argv[1]), Path(sys.argv[2])
    copy(module, out)
    (out / PACKAGES).write_text(keep_packages((out / PACKAGES).read_text()))
    (out / CLIENTS).write_text(keep_clients((out / CLIENTS).read_text(), clients_in_use(out)))
    (out / BACKOFF).write_text(wait_in_market_time((out / BACKOFF).read_text()))
    (out / BACKOFF.with_name("market_time.go")).write_text(MARKET_TIME.lstrip())


if __name__ == "__main__":
    main()
