"""Pulumi's Kubernetes provider: the official plugin where it can be had, else a build from its own Go module. It speaks
to an API server itself, so that no bridge is needed."""

import re
import sys

import engine
from downloads import Unreachable
from problems import GO_BYTES, disk, go
from provider import Plugin
from steps import ROOT, TOOLCHAIN, Step, call, print_progress

SOURCES = ROOT / "tools" / "upstream_kubernetes"
COMPONENT = ROOT / "components" / "everspot" / "kubernetes" / "pool.py"
MODULE = "github.com/pulumi/pulumi-kubernetes/provider/v4"
COPY = TOOLCHAIN / "src" / "pulumi-kubernetes"
LAUNCHER = """#!/bin/sh
# Written by set-up: starts the official plugin.
exec "$(dirname -- "$0")/official/pulumi-resource-kubernetes" "$@"
"""
PLUGIN = Plugin("kubernetes", "kubernetes", 15, LAUNCHER, "provider-kubernetes")


def version() -> str:
    """Return the version of the plugin, as the component pins it."""
    match = re.search(r'^PLUGIN = "([\d.]+)"$', COMPONENT.read_text(), re.M)
    if match is None:
        raise RuntimeError(f"{COMPONENT} pins no version")
    return match[1]


def build() -> None:
    """Build the plugin from a copy of its module, in which the two files that it embeds are made.

    Raises:
        Missing: there is no Go, no room, or no module source.
    """
    disk(TOOLCHAIN, GO_BYTES if not PLUGIN.file.exists() else 0, "building Pulumi's Kubernetes provider (Go's caches)")
    pinned = re.search(rf"require {MODULE} (\S+)", (SOURCES / "go.mod").read_text())
    if pinned is None:
        raise RuntimeError(f"{SOURCES}/go.mod does not require {MODULE}")
    output = call(
        [go(), "mod", "download", "-json", f"{MODULE}@{pinned[1]}"], "provider-kubernetes-source", TOOLCHAIN,
        {"GOWORK": "off"},
    )  # fmt: skip
    folder = re.search(r'"Dir": "([^"]+)"', output)
    if folder is None:
        raise RuntimeError("go mod download names no folder")
    call([sys.executable, SOURCES / "trim.py", folder[1], COPY, version()], "provider-kubernetes-trim")
    stamped = ["-ldflags", f"-s -w -X {MODULE}/pkg/version.Version=v{version()}"]
    command = f"{MODULE}/cmd/pulumi-resource-kubernetes"
    engine.build(SOURCES, command, PLUGIN.file, "provider-kubernetes-build", stamped)


def make() -> str:
    """Get the plugin by the first way that works."""
    TOOLCHAIN.mkdir(parents=True, exist_ok=True)
    try:
        PLUGIN.official()
        return f"the official plugin {version()}"
    except Unreachable as error:
        print_progress(f"{PLUGIN.label}: no official download ({error}), building it, about {PLUGIN.minutes} minutes")
        build()
        return f"{version()}, built from its Go module"


_FILES = (*(SOURCES / name for name in ("go.mod", "go.sum", "trim.py")), COMPONENT)
step = Step(PLUGIN.label, _FILES, lambda: [PLUGIN.file], make)
