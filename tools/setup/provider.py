"""The provider plugins, one a cloud: the official one where it can be had, else the bridge before the upstream one."""

import re
import shutil
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import engine
from downloads import Unreachable, fetch, system, unpack
from problems import GO_BYTES, disk
from steps import BIN, PLUGINS, ROOT, TOOLCHAIN, Step, call, print_progress

RELEASE = "https://get.pulumi.com/releases/plugins/pulumi-resource-{name}-v{version}-{system}-{machine}.tar.gz"
BRIDGE = """#!/bin/sh
# Written by set-up: the bridge, under the provider's name that the Pulumi engine looks for.
root=$(CDPATH= cd -- "$(dirname -- "$0")/../../.." && pwd)
export EVERSPOT_TOOLCHAIN="$root/.everspot/toolchain" EVERSPOT_BRIDGE_PROVIDER={name}
exec "$root/.venv/bin/python" -m everspot_local.bridge "$@"
"""
AWS_LAUNCHER = """#!/bin/sh
# Written by set-up: starts the official plugin. S3 Control puts the account before the endpoint's host name, and a name
# such as 123456789012.127.0.0.1 cannot be looked up. So an endpoint that is an address is its proxy for plain HTTP too.
case "${AWS_ENDPOINT_URL-}" in
http://[0-9]*.[0-9]*.[0-9]*.[0-9]*)
    if [ -z "${HTTP_PROXY-}${http_proxy-}" ]; then export HTTP_PROXY="$AWS_ENDPOINT_URL"; fi ;;
esac
exec "$(dirname -- "$0")/official/pulumi-resource-aws" "$@"
"""
LAUNCHER = """#!/bin/sh
# Written by set-up: starts the official plugin.
exec "$(dirname -- "$0")/official/pulumi-resource-{name}" "$@"
"""


@dataclass(frozen=True)
class Plugin:
    """One provider. `name`: Pulumi's. `wrapped`: Terraform's for the one that it wraps.

    `minutes`: how long the build of that one takes where nothing of it is cached. `launcher`: starts the official
    plugin. `label`: the step's name, and the file's in the toolchain that says which of the two ways was taken.
    """

    name: str
    wrapped: str
    minutes: int
    launcher: str
    label: str

    @property
    def sources(self) -> Path:
        """The folder of what decides about the build: `go.mod`, `go.sum`, `trim.py`."""
        return ROOT / "tools" / f"upstream_{self.wrapped}"

    @property
    def module(self) -> str:
        """The upstream provider's Go module."""
        return f"github.com/hashicorp/terraform-provider-{self.wrapped}"

    @property
    def copy(self) -> Path:
        """Where the trimmed copy of its source lies."""
        return TOOLCHAIN / "src" / f"terraform-provider-{self.wrapped}"

    @property
    def binary(self) -> Path:
        """The upstream provider."""
        return BIN / f"terraform-provider-{self.wrapped}"

    @property
    def file(self) -> Path:
        """What the engine starts."""
        return PLUGINS / f"pulumi-resource-{self.name}"

    @property
    def official_file(self) -> Path:
        """The official plugin."""
        return PLUGINS / "official" / self.file.name

    @property
    def note(self) -> Path:
        """The file that records which of the two is installed."""
        return TOOLCHAIN / self.label

    def version(self) -> str:
        """Return the version of the SDK that the project pins."""
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        pin = rf"pulumi-{self.name}==([\d.]+)"
        return next(m[1] for r in extras["components"] if (m := re.fullmatch(pin, r)))

    def official(self) -> None:
        """Download the official plugin. No sums are published beside it: what is trusted is the connection (TLS).

        Raises:
            Unreachable: it cannot be had.
        """
        name, machine = system("amd64")
        archive = TOOLCHAIN / "download" / f"{self.file.name}.tar.gz"
        fetch(RELEASE.format(name=self.name, version=self.version(), system=name, machine=machine), archive)
        unpack(archive, archive.parent / self.name)
        plugin = archive.parent / self.name / self.file.name
        if not plugin.exists():
            raise Unreachable(f"{archive.name} holds no {self.file.name}")
        self.official_file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(plugin, self.official_file)
        self._start_with(self.launcher)

    def built(self) -> str:
        """Build the upstream provider with the services in use, put the bridge before it, and say so.

        Raises:
            Missing: there is no Go, no room, or no module source.
        """
        self.copy_source(f"the upstream provider of {self.name}")
        engine.build(self.sources, self.module, self.binary, f"{self.label}-build")
        self._start_with(BRIDGE.format(name=self.name))
        return "the bridge before the upstream provider, built with the services in use"

    def copy_source(self, subject: str, *arguments: str) -> None:
        """Make the copy of the module's source from which it is built.

        Args:
            subject: what is built, in words.
            arguments: further ones of `trim.py`.

        Raises:
            Missing: there is no Go, no room, or no module source.
        """
        disk(TOOLCHAIN, GO_BYTES if not self.binary.exists() else 0, f"building {subject} (Go's caches)")
        pinned = re.search(rf"require {self.module} (\S+)", (self.sources / "go.mod").read_text())
        if pinned is None:
            raise RuntimeError(f"{self.sources}/go.mod does not require {self.module}")
        folder = engine.module_folder(f"{self.module}@{pinned[1]}", f"{self.label}-source")
        call([sys.executable, self.sources / "trim.py", folder, self.copy, *arguments], f"{self.label}-trim")

    def _start_with(self, script: str) -> None:
        PLUGINS.mkdir(parents=True, exist_ok=True)
        fresh = self.file.with_name(f".{self.file.name}.new")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.replace(self.file)

    def make(self) -> str:
        """Get the plugin by the first way that works."""
        TOOLCHAIN.mkdir(parents=True, exist_ok=True)
        try:
            self.official()
            how = f"the official plugin {self.version()}"
            self.note.write_text("official")
        except Unreachable as error:
            print_progress(
                f"{self.label}: no official download ({error}), building the upstream provider, "
                f"about {self.minutes} minutes the first time"
            )
            how = self.built()
            self.note.write_text("bridge")
        return how

    def official_in_place(self) -> bool:
        """Whether the official plugin is what was found, so that nothing of the bridge is needed."""
        return self.note.exists() and self.note.read_text() == "official"

    def products(self) -> list[Path]:
        """Return what proves that there is a plugin."""
        return [self.note, self.file, self.official_file if self.official_in_place() else self.binary]

    def step(self, *more: Path) -> Step:
        """Return the step that installs it. `more`: other files that the build depends on."""
        own = tuple(self.sources / name for name in ("go.mod", "go.sum", "trim.py"))
        return Step(self.label, (*own, *more), self.products, self.make)


AWS = Plugin("aws", "aws", 6, AWS_LAUNCHER, "provider")
GCP = Plugin("gcp", "google", 4, LAUNCHER.format(name="gcp"), "provider-gcp")
PLUGINS_OF = {plugin.name: plugin for plugin in (AWS, GCP)}
steps = {AWS.name: AWS.step(), GCP.name: GCP.step(AWS.sources / "trim.py")}
"""By cloud. Google's trim.py takes from the other what the two have in common."""
