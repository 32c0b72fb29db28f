"""The forge of `make review-demo`: Gitea and its runner, built from their Go modules.

The web frontend is left out: pages come without styles, and what a review needs (the interface, git over HTTP, the
runs) is whole. Gitea reads its templates and translations from a folder beside it.
"""

import re
import shutil
from pathlib import Path

import engine
from problems import GIB, Missing, disk, go
from steps import ROOT, TOOLCHAIN, Step, call, print_progress

PLACE = TOOLCHAIN / "forge"
GITEA = ROOT / "tools" / "forge" / "gitea"
RUNNER = ROOT / "tools" / "forge" / "runner"
GITEA_MODULE = "code.gitea.io/gitea"
RUNNER_MODULE = "gitea.com/gitea/runner"
STATIC = ("options", "templates", "public")
BYTES = 4 * GIB
"""Measured: Go's caches with what both are made of, and the two programs."""


def version() -> str:
    """Return Gitea's version, as its module is pinned."""
    match = re.search(rf"require {GITEA_MODULE} v(\S+)", (GITEA / "go.mod").read_text())
    if match is None:
        raise RuntimeError(f"{GITEA}/go.mod does not require {GITEA_MODULE}")
    return match[1]


def make() -> str:
    """Build both. SQLite is C, so that a C compiler is needed beside Go.

    Raises:
        Missing: there is no Go, no C compiler, no room, or no module source.
    """
    if not any(shutil.which(name) for name in ("gcc", "clang", "cc")):
        raise Missing("the forge's database, SQLite, is built from C: install a C compiler (gcc) and put it on PATH")
    disk(TOOLCHAIN, BYTES if not (PLACE / "gitea").exists() else 0, "building the forge (Go's caches)")
    print_progress("forge: building Gitea and its runner, about 4 minutes on two cores the first time")
    tags = ["-tags", "sqlite sqlite_unlock_notify timetzdata"]
    stamped = ["-ldflags", f"-s -w -X main.Version={version()}"]
    engine.build(GITEA, GITEA_MODULE, PLACE / "gitea", "forge-gitea", [*tags, *stamped])
    engine.build(RUNNER, RUNNER_MODULE, PLACE / "gitea-runner", "forge-runner")
    source = Path(call([go(), "list", "-m", "-f", "{{.Dir}}", GITEA_MODULE], "forge-static", GITEA).strip())
    for name in STATIC:
        target = PLACE / "static" / name
        shutil.rmtree(target, ignore_errors=True)
        # Go's cache is read-only, and so would the copies be.
        shutil.copytree(source / name, target, copy_function=shutil.copyfile)
        target.chmod(0o755)
        for folder in filter(Path.is_dir, target.rglob("*")):
            folder.chmod(0o755)
    return f"Gitea {version()} and its runner, built from their Go modules"


def products() -> list[Path]:
    """Return what proves that there is a forge."""
    return [PLACE / "gitea", PLACE / "gitea-runner", *(PLACE / "static" / name for name in STATIC)]


_MODULES = tuple(folder / name for folder in (GITEA, RUNNER) for name in ("go.mod", "go.sum"))
step = Step("forge", _MODULES, products, make)
