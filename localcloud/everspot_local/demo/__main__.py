"""`make demo`: provision, train, interrupt, resume and report, once, on this machine; no cloud account is needed.

The real Pulumi engine provisions a cluster on the local cloud: one instance stands, all others are launched for jobs.
Real PyTorch jobs train on them, the market interrupts them, one waits out a drought, a sweep's trials share instances,
and the report says what it cost. Exit code 0 only if every promise was kept.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

from pulumi import automation
from rich.table import Table

from everspot_local.console import PlainConsole
from everspot_local.demo import processes
from everspot_local.demo.checks import Check, promises, sweep_promises, waited_in_time
from everspot_local.demo.pages import save_pages
from everspot_local.demo.phases import Phases
from everspot_local.demo.site import DEMO_CLOUDS, load_site
from everspot_local.demo.story import Story
from everspot_local.demo.trials import SWEEP, Trials
from everspot_local.demo.world import CONTAINED, EMULATED, MACHINES, ROOT, DemoError, DemoWorld

CHECKPOINT_STEPS = 500  # as the job specs beside this file say
console = PlainConsole()


def main() -> int:
    """Run the demonstration; returns the exit code."""
    options = _options()
    processes.listen()
    processes.adopt_orphans()
    phases = Phases(console)
    site = load_site(options.cloud)
    time_scale = options.time_scale or site.time_scale
    home: Path = options.out or ROOT / ".everspot" / site.folder
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    world = DemoWorld(site, home=home, time_scale=time_scale, print_line=_print_line)
    checks: list[Check] = []
    code = 1
    try:
        boot: list[str] = []
        if options.machines == CONTAINED:
            with phases.phase("the training image", "image"):
                boot = world.bake_image()
        checks = _play(world, boot, options.limit, phases)
        code = 0
    except processes.Interrupted as interrupted:
        console.print("  interrupted: taking everything down", style="yellow")
        code = 128 + interrupted.number
    except (DemoError, subprocess.SubprocessError, automation.CommandError) as error:
        console.print(str(error)[-4000:], style="red")
    finally:
        with contextlib.suppress(DemoError, KeyboardInterrupt):
            world.local("down")
        stubborn = processes.end_descendants()
    if code == 0:
        checks.append(
            Check("no process is left", not stubborn, f"{len(stubborn)} had to be ended: {list(stubborn.values())[:3]}")
        )
        code = _verdict(checks, home, phases.minutes)
    console.print(phases.line())
    return code


def _play(world: DemoWorld, boot: list[str], limit: timedelta, phases: Phases) -> list[Check]:
    with phases.phase(f"a local cloud, {world.time_scale:g} times as fast as the world", "cloud"):
        world.start(*boot)
    account, cluster = world.site.account, world.site.cluster
    if account is not None:
        with phases.phase(f"pulumi up -s {account}", "account"):
            world.up(account)
    with phases.phase(f"pulumi up -s {cluster}: network, store, roles, fleet, events, scheduler", "up"):
        world.up(cluster)
    story = Story(world, Trials(world))
    checks: list[Check] = []
    with phases.phase("train, interrupt, resume; a drought, and a sweep", "jobs"):
        story.submit()
        story.plan_strokes()
        with console.status("") as status:
            story.run(limit, status.update)
    with phases.phase("what was launched for the jobs goes by itself", "empty"):
        checks.append(Check("no launched instance is left", *_emptied(world, limit)))
    with phases.phase("the report, and the same bill summed from the market's own log", "report"):
        checks += _bill(world, story)
    with phases.phase(f"pulumi up -s {cluster} --expect-no-changes", "second up"):
        world.up(cluster, expect_no_changes=True)
        checks.append(Check("a second up changes nothing", True, "expect-no-changes"))
    with phases.phase("drain", "drain"):
        world.everspot("drain", "--wait")
    with phases.phase("pulumi destroy", "destroy"):
        for stack in reversed(world.site.stacks):
            world.destroy(stack)
        leftovers, channel = world.leftovers(), f"asked through {world.site.asked_through}"
        checks.append(Check("destroy leaves nothing behind", not leftovers, ", ".join(leftovers[:5]) or channel))
    return checks


def _bill(world: DemoWorld, story: Story) -> list[Check]:
    """Return the promises that the report, the sweep and the market's log can prove, after printing the first two."""
    report, audit = _report(world)
    save_pages(world, story.ids)
    console.print(world.everspot("sweep", str(SWEEP), "--show"))
    equal = f"{audit:.2f}" == f"{report['cost_usd']:.2f}"
    return [
        *promises(report, CHECKPOINT_STEPS),
        waited_in_time(report, story.on_demand_at, world.site),
        *sweep_promises(report, story.trials.shown(), story.trials.max_concurrent),
        Check("an independent sum gives the same bill", equal, f"${audit:.4f} and ${report['cost_usd']:.4f}"),
    ]


def _emptied(world: DemoWorld, limit: timedelta) -> tuple[bool, str]:
    """Return whether the instances launched for ended jobs end by themselves, and how long that took in market time."""
    began = time.monotonic()
    while instances := world.launched():
        if time.monotonic() - began > limit.total_seconds():
            return False, ", ".join(instances)
        time.sleep(1)
    return True, f"after {(time.monotonic() - began) * world.time_scale / 60:.0f} min"


def _report(world: DemoWorld) -> tuple[dict, float]:  # type: ignore[type-arg]
    report = world.everspot_json("report", "--settle", "--html", str(world.home / "report.html"))
    (world.home / "report.json").write_text(json.dumps(report, indent=2))
    console.print(world.everspot("report", "--as-of", report["as_of"]))
    audit = subprocess.run(  # noqa: S603
        [sys.executable, ROOT / "tools/audit_bill.py", world.market_log, "--cloud", world.site.billed_cloud,
         "--until", report["as_of"], "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return report, float(json.loads(audit.stdout)["total_usd"])


def _verdict(checks: list[Check], home: Path, minutes: float) -> int:
    all_passed = all(c.holds for c in checks)
    table = Table(title=f"{'All checks passed' if all_passed else 'Failed checks'} in {minutes:.1f} minutes")
    for column in ("promise", "kept", "figure"):
        table.add_column(column)
    for check in checks:
        table.add_row(check.name, check.verdict(), check.figure)
    console.print(table)
    console.print(
        f"picture: {home / 'report.html'}\nweb UI: {home / 'pages/jobs.html'}\nfigures: {home / 'report.json'}"
    )
    return 0 if all_passed else 1


def _print_line(line: str) -> None:
    console.print(f"  {line}")


def _machines(text: str) -> str:
    if text == EMULATED:
        raise argparse.ArgumentTypeError(
            "emulated machines are some thirty times as slow as the demo's jobs expect; boot them with "
            "`everspot-local up --machines vm --image DIR`, or run the demo on contained machines"
        )
    if text not in MACHINES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(MACHINES)}")
    return text


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--cloud", choices=DEMO_CLOUDS, default=DEMO_CLOUDS[0], help="the cloud that the local one is")
    parser.add_argument(
        "--out", type=Path, help="folder of the report and the logs (default: .everspot/demo, .everspot/demo-gcp, …)"
    )
    parser.add_argument(
        "--machines", type=_machines, metavar="{%s}" % ",".join(MACHINES), default=MACHINES[0],  # noqa: UP031
        help="what an instance is: a process, or the image, booted",
    )  # fmt: skip
    parser.add_argument("--time-scale", type=float, help="seconds of market time in a second (default: 12)")
    parser.add_argument(
        "--limit",
        type=lambda s: timedelta(seconds=float(s)),
        default=timedelta(minutes=30),
        help="seconds for the jobs",
    )
    options = parser.parse_args()
    if options.cloud == "kubernetes" and options.machines != MACHINES[0]:
        parser.error("--machines: the machines of --cloud kubernetes boot a node, whose pods are processes")
    return options


if __name__ == "__main__":
    sys.exit(main())
