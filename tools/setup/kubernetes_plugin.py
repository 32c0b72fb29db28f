"""Pulumi's Kubernetes provider: the official plugin where it can be had, else a build from its own Go module. It speaks
to an API server itself, so that no bridge is needed."""

import re
from dataclasses import dataclass
from pathlib import Path

import engine
from provider import LAUNCHER, Plugin
from steps import ROOT, TOOLCHAIN

COMPONENT = ROOT / "components" / "everspot" / "kubernetes" / "pool.py"


@dataclass(frozen=True)
class KubernetesPlugin(Plugin):
    """The provider that wraps no other one."""

    @property
    def module(self) -> str:
        """See `Plugin`."""
        return "github.com/pulumi/pulumi-kubernetes/provider/v4"

    @property
    def copy(self) -> Path:
        """See `Plugin`."""
        return TOOLCHAIN / "src" / "pulumi-kubernetes"

    @property
    def binary(self) -> Path:
        """See `Plugin`."""
        return self.file

    def version(self) -> str:
        """Return the version that the component pins: the project has no SDK of this provider."""
        match = re.search(r'^PLUGIN = "([\d.]+)"$', COMPONENT.read_text(), re.M)
        if match is None:
            raise RuntimeError(f"{COMPONENT} pins no version")
        return match[1]

    def built(self) -> str:
        """Build the plugin from a copy of its module, in which the two files that it embeds are made."""
        self.copy_source("Pulumi's Kubernetes provider", self.version())
        stamped = ["-ldflags", f"-s -w -X {self.module}/pkg/version.Version=v{self.version()}"]
        engine.build(
            self.sources, f"{self.module}/cmd/pulumi-resource-kubernetes", self.file, f"{self.label}-build", stamped
        )
        return f"{self.version()}, built from its Go module"


PLUGIN = KubernetesPlugin("kubernetes", "kubernetes", 15, LAUNCHER.format(name="kubernetes"), "provider-kubernetes")
step = PLUGIN.step(COMPONENT)
