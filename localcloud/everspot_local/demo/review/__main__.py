"""`make review-demo`: a change's way on a real forge and its runner, all on this machine; no cloud account is needed.

A developer opens a pull request, the shipped workflows preview and comment it, a second push edits the comment, a
change over budget is blocked, the fixed one is merged, and exactly what was reviewed is applied on the local cloud. A
later change by hand is found as drift. Exit code 0 only if every promise was kept.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from pulumi import automation
from requests import RequestException
from rich.table import Table

from everspot_local.console import PlainConsole
from everspot_local.demo import processes
from everspot_local.demo.checks import Check
from everspot_local.demo.phases import Phases
from everspot_local.demo.review.gitea import Gitea, programs
from everspot_local.demo.review.walk import Walk
from everspot_local.demo.site import load_site
from everspot_local.demo.world import ROOT, DemoError, DemoWorld

PROGRAMS = ROOT / ".everspot" / "toolchain" / "forge"
TIME_SCALE = 60.0


def main() -> int:
    """Run the review demonstration; returns the exit code."""
    options = _options()
    console = PlainConsole(stderr=options.json)
    processes.listen()
    processes.adopt_orphans()
    home: Path = (options.out or ROOT / ".everspot" / "review-demo").resolve()
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    phases, checks, code = Phases(console), [], 1
    world = DemoWorld(
        load_site("aws"), home=home, time_scale=TIME_SCALE, print_line=lambda line: _print_line(console, line)
    )
    walk = Walk(world, phases)
    try:
        _walk(walk)
        code = 0
    except processes.Interrupted as interrupted:
        console.print("interrupted: taking everything down", style="yellow")
        code = 128 + interrupted.number
    except (DemoError, RequestException, subprocess.SubprocessError, automation.CommandError) as error:
        console.print(str(error)[-4000:], style="red")
    finally:
        with contextlib.suppress(DemoError, KeyboardInterrupt):
            world.local("down")
        stubborn = processes.end_descendants()
    checks = walk.checks
    if code == 0:
        summary = (
            f"{len(stubborn)} had to be ended: {list(stubborn.values())[:3]}" if stubborn else "all ended when asked"
        )
        checks.append(Check("no process is left", not stubborn, summary))
        code = 0 if all(check.holds for check in checks) else 1
    _show(console, checks, phases, all_passed=code == 0)
    console.print(f"comments, logs and reports: {home}")
    if options.json:
        sys.stdout.write(json.dumps(_document(checks, phases, all_passed=code == 0), indent=2) + "\n")
    return code


def _walk(walk: Walk) -> None:
    lacking = [path for path in programs(PROGRAMS) if not path.exists()]
    if lacking:
        raise DemoError(f"{lacking[0]} is missing: `make review-demo` builds it")
    walk.provision()
    with Gitea(PROGRAMS, walk.world.home / "forge", walk.runner_variables()) as forge:
        walk.set_up_repository(forge)
        walk.open()
        walk.push_again()
        walk.stranger(forge)
        walk.overspend()
        walk.mend_and_merge()
        walk.push_past_review()
        walk.meddle()
        walk.keep_secrets()


def _show(console: PlainConsole, checks: list[Check], phases: Phases, *, all_passed: bool) -> None:
    words = "What was merged is what was reviewed" if all_passed else "Broken promises"
    table = Table(title=f"{words}: {phases.minutes:.1f} minutes")
    for column in ("promise", "kept", "figure"):
        table.add_column(column)
    for check in checks:
        table.add_row(check.name, check.verdict(), check.figure)
    console.print(table)
    console.print(phases.line())


def _document(checks: list[Check], phases: Phases, *, all_passed: bool) -> dict[str, object]:
    return {
        "kept": all_passed,
        "promises": [asdict(check) for check in checks],
        "seconds": {name: round(seconds, 1) for name, seconds in phases.done},
    }


def _print_line(console: PlainConsole, line: str) -> None:
    console.print(f"  {line}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make review-demo", description=__doc__)
    parser.add_argument(
        "--out", type=Path, help="folder of comments, logs and reports (default: .everspot/review-demo)"
    )
    parser.add_argument("--json", action="store_true", help="answer with JSON on standard output")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
