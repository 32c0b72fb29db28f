"""Bakes one of the product's templates by Debian's Packer on the local cloud, in its machines' private network."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from builder_image import Proxy, builder_image, package_settings
from everspot_local.image.bake import build_wheel
from everspot_local.image.inputs import commit
from everspot_local.options import DOORS
from image_machine import BOOT
from image_source import CACHE, ROOT
from packer_template import BAKE, without_younger


@dataclass(frozen=True)
class Bake:
    """A bake that has succeeded.

    Attributes:
        output: what Packer printed.
        commit: of the wheel.
        seconds: how long Packer took.
    """

    output: str
    commit: str
    seconds: float


def boot_builder(folder: Path, cloud: str, proxy: Proxy) -> tuple[str, ...]:
    """Return the boot command of machines that start from a base image, unless they have an image with a tree."""
    if shutil.which("packer") is None:
        pytest.skip("Packer is not installed: Debian's package `packer`")
    words = [f"{name}={value}" for name, value in package_settings(proxy.url).items()]
    base = builder_image(ROOT, CACHE, folder / "base", cloud)
    return ("/usr/bin/env", *words, *BOOT, "--image", str(base), *DOORS[cloud])


def run_packer(
    folder: Path,
    template: str,
    adapt: Callable[[str], str],
    variables: Mapping[str, Any],
    where: tuple[str, str, str],
    failure: Callable[[], str],
) -> Bake:
    """Bake a template; fail with Packer's output.

    Args:
        folder: an empty one, for what Packer needs.
        template: file name.
        adapt: returns the template's text for the local cloud.
        variables: of the template, beside those of the wheel.
        where: cloud, its endpoint and its region.
        failure: what else is told of a bake that fails.
    """
    shutil.copytree(BAKE, folder / "bake")
    path = folder / "bake" / template
    path.write_text(without_younger(adapt(path.read_text()), template))
    variables = {"wheel": build_wheel(ROOT, folder), "commit": commit(ROOT), "python": "python3", **variables}
    network = [sys.executable, str(Path(__file__).with_name("builder_network.py")), *where]
    packer = ["packer", "build", "-color=false", *(f"-var={name}={value}" for name, value in variables.items())]
    # The folder may contain programs that Packer calls.
    env = {**os.environ, "HOME": str(folder), "CHECKPOINT_DISABLE": "1", "PACKER_PLUGIN_PATH": str(folder)}
    env["PATH"] = f"{folder}:{env['PATH']}"
    # Every 15 seconds, which it does by itself, would be half of the bake.
    env |= {"AWS_POLL_DELAY_SECONDS": "1", "AWS_MAX_ATTEMPTS": "900"}
    began = time.monotonic()
    answer = subprocess.run(
        [*network, *packer, str(path)], cwd=folder, env=env, capture_output=True, text=True, timeout=1200
    )
    output = answer.stdout + answer.stderr
    assert answer.returncode == 0, output[-6000:] + failure()
    return Bake(output, variables["commit"], time.monotonic() - began)


def list_leftovers(tree: Path, user: str) -> list[str]:
    """Return what sealing should have removed from an image's tree."""
    names = (f"home/{user}/.ssh/authorized_keys", "etc/ssh/ssh_host_*", "root/.ssh/authorized_keys", "tmp/*",
             "var/tmp/*", "var/lib/everspot", "var/lib/systemd/random-seed", "home/*/.bash_history")  # fmt: skip
    return [str(path) for name in names for path in tree.glob(name) if not path.is_char_device()]
