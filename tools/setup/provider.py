"""The AWS provider plugin: the official one where it can be had, else the bridge before the upstream provider."""

import re
import shutil
import sys
import tomllib
from pathlib import Path

import engine
from downloads import Unreachable, fetch, system, unpack
from problems import GO_BYTES, disk, go
from steps import BIN, PLUGINS, ROOT, TOOLCHAIN, Step, call, say

RELEASE = "https://get.pulumi.com/releases/plugins/pulumi-resource-aws-v{version}-{system}-{machine}.tar.gz"
UPSTREAM = ROOT / "tools" / "upstream_aws"
MODULE = "github.com/hashicorp/terraform-provider-aws"
SOURCE = TOOLCHAIN / "src" / "terraform-provider-aws"
PLUGIN = PLUGINS / "pulumi-resource-aws"
OFFICIAL = PLUGINS / "official" / PLUGIN.name
NOTE = TOOLCHAIN / "provider"  # a note of which of the two it is
BRIDGE = """#!/bin/sh
# Written by set-up: the bridge, under the name by which the Pulumi engine looks for the AWS provider.
root=$(CDPATH= cd -- "$(dirname -- "$0")/../../.." && pwd)
export EVERSPOT_TOOLCHAIN="$root/.everspot/toolchain" EVERSPOT_BRIDGE_PROVIDER=aws
exec "$root/.venv/bin/python" -m everspot_local.bridge "$@"
"""

LAUNCHER = """#!/bin/sh
# Written by set-up: starts the official plugin. S3 Control puts the account before the endpoint's host name, and a name
# such as 123456789012.127.0.0.1 cannot be looked up. So an endpoint that is an address is its proxy for plain HTTP too.
case "${AWS_ENDPOINT_URL-}" in
http://[0-9]*.[0-9]*.[0-9]*.[0-9]*)
    if [ -z "${HTTP_PROXY-}${http_proxy-}" ]; then export HTTP_PROXY="$AWS_ENDPOINT_URL"; fi ;;
esac
exec "$(dirname -- "$0")/official/pulumi-resource-aws" "$@"
"""


def version() -> str:
    """Return the version of the SDK that the project pins."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return next(m[1] for r in extras["components"] if (m := re.fullmatch(r"pulumi-aws==([\d.]+)", r)))


def official() -> None:
    """Download the official plugin. No sums are published beside it: what is trusted is the connection (TLS).

    Raises:
        Unreachable: it cannot be had.
    """
    name, machine = system("amd64")
    archive = TOOLCHAIN / "download" / "pulumi-resource-aws.tar.gz"
    fetch(RELEASE.format(version=version(), system=name, machine=machine), archive)
    unpack(archive, archive.parent / "aws")
    plugin = archive.parent / "aws" / PLUGIN.name
    if not plugin.exists():
        raise Unreachable(f"{archive.name} holds no {PLUGIN.name}")
    OFFICIAL.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(plugin, OFFICIAL)
    PLUGIN.write_text(LAUNCHER)
    PLUGIN.chmod(0o755)


def built() -> None:
    """Build the upstream provider with the services in use, and put the bridge before it.

    Raises:
        Missing: there is no Go, no room, or no module source.
    """
    target = BIN / "terraform-provider-aws"
    disk(TOOLCHAIN, GO_BYTES if not target.exists() else 0, "building the upstream AWS provider (Go's caches)")
    pinned = re.search(rf"require {MODULE} (\S+)", (UPSTREAM / "go.mod").read_text())
    if pinned is None:
        raise RuntimeError(f"{UPSTREAM}/go.mod does not require {MODULE}")
    # Outside any module: inside this one the module is replaced by the trimmed copy, which is not there yet.
    found = call(
        [go(), "mod", "download", "-json", f"{MODULE}@{pinned[1]}"], "upstream-source", TOOLCHAIN, {"GOWORK": "off"}
    )
    where = re.search(r'"Dir": "([^"]+)"', found)
    if where is None:
        raise RuntimeError("go mod download names no folder")
    call([sys.executable, UPSTREAM / "trim.py", where[1], SOURCE], "upstream-trim")
    engine.build(UPSTREAM, MODULE, target, "upstream")
    PLUGINS.mkdir(parents=True, exist_ok=True)
    PLUGIN.write_text(BRIDGE)
    PLUGIN.chmod(0o755)


def make() -> str:
    """Get the plugin by the first way that works."""
    TOOLCHAIN.mkdir(parents=True, exist_ok=True)
    try:
        official()
        how = f"the official plugin {version()}"
        NOTE.write_text("official")
    except Unreachable as error:
        say(f"provider: no official download ({error}), building the upstream provider, about 6 minutes the first time")
        built()
        how = "the bridge before the upstream provider, built with the services in use"
        NOTE.write_text("bridge")
    return how


def official_in_place() -> bool:
    """Whether the official plugin is what was found, so that nothing of the bridge is needed."""
    return NOTE.exists() and NOTE.read_text() == "official"


def products() -> list[Path]:
    """Return what proves that there is a plugin."""
    return [NOTE, PLUGIN, OFFICIAL if official_in_place() else BIN / "terraform-provider-aws"]


step = Step("provider", (UPSTREAM / "go.mod", UPSTREAM / "go.sum", UPSTREAM / "trim.py"), products, make)
