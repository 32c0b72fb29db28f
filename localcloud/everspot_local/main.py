"""The `everspot-local` command."""

import json
import os
import shlex
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from everspot_clouds.naming import cloud_of_region
from everspot_clouds.price_files import FOLDER, file_name, project_catalogue
from everspot_core.capacity.catalogue import builtin
from everspot_core.encodings import degrade_output
from everspot_core.jobs.records import Market
from rich.table import Table

from everspot_local import kubernetes_choice
from everspot_local.address import Address, ControlRefused, NotRunning
from everspot_local.command import Command
from everspot_local.console import PlainConsole
from everspot_local.controls.script import BadScript, Script
from everspot_local.environment import project_root, variables
from everspot_local.kubernetes_choice import KubernetesChoice
from everspot_local.market import clock as clocks
from everspot_local.options import (
    DELAYS,
    DISTURBANCES,
    DOORS,
    EMULATED_SCALE,
    LOCAL_CLOUDS,
    REGIONS,
    SCALE,
    Options,
    emulated_delays,
)
from everspot_local.providers import quotas
from everspot_local.running import STOP_SECONDS, Failed, complaints, fail, find, start, wait_until_ended

app = typer.Typer(help="A cloud on one machine, with a Spot market that can be scripted.", no_args_is_help=True)
screen = PlainConsole()

StateDir = Annotated[
    Path, typer.Option("--state-dir", help="Folder of logs and instances.", envvar="EVERSPOT_LOCAL_DIR")
]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
HERE = Path(".everspot/local")
IMAGES = Path(".everspot/image")
MACHINES = ("process", "contained", "vm")
_USUAL = {"aws": "eu-west-1"}
"""Region where the stack files that come with Everspot are, where that is not the cloud's usual one here."""


@app.command()
def up(
    state_dir: StateDir = HERE,
    cloud: Annotated[str, typer.Option(help=f"Which cloud: {', '.join(LOCAL_CLOUDS)}, or kubernetes, on aws.")] = "aws",
    port: Annotated[int, typer.Option(help="Port of the endpoint; 0 takes a free one.")] = 0,
    time_scale: Annotated[
        float | None, typer.Option(help="Market seconds in a real second, by default 12, and 0.25 for --machines vm.")
    ] = None,
    clock_of: Annotated[
        Path | None, typer.Option(help="State folder of another local cloud, whose market time this one keeps.")
    ] = None,
    region: Annotated[str, typer.Option(help="The only region, by default eu-west-1 or europe-west4.")] = "",
    seed: Annotated[int, typer.Option(help="Of depths and prices.")] = 7,
    script: Annotated[Path | None, typer.Option(help="Market script, YAML or JSON.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Availability trace, JSON.")] = None,
    boot_command: Annotated[str, typer.Option(help="What an instance runs, by default the image's agent.")] = "",
    data: Annotated[Path | None, typer.Option(help="Folder of datasets, by default .everspot/data.")] = None,
    machines: Annotated[
        str, typer.Option(help="What an instance is: process; contained or vm (emulated), which boot --image.")
    ] = "process",
    image: Annotated[Path | None, typer.Option(help="Folder of a baked image, for --machines contained or vm.")] = None,
    no_processes: Annotated[bool, typer.Option("--no-processes", help="Instances run nothing.")] = False,
    iam_enforce: Annotated[
        bool, typer.Option("--iam-enforce/--no-iam-enforce", help="Hold roles to their policies.")
    ] = True,
    lenient: Annotated[bool, typer.Option("--lenient", help="Accept what the cloud would refuse or throttle.")] = False,
    quota: Annotated[list[str] | None, typer.Option(help="CODE=VALUE, for example L-34B43A08=64; often.")] = None,
    delay: Annotated[
        list[str] | None, typer.Option(help="NAME=SPAN of market time, for example boot=90s; often.")
    ] = None,
    disturbance: Annotated[
        list[str] | None, typer.Option(help="NAME=SHARE from 0 to 1, for example slow_down=0.03; often.")
    ] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay in this terminal until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start the local cloud; where one runs already, say so and leave it."""
    state_dir = state_dir.resolve()
    kubernetes: KubernetesChoice | None = None
    if cloud == kubernetes_choice.NAME:
        kubernetes = kubernetes_choice.choose(state_dir, time_scale, machines, boot_command, no_processes)
        cloud, time_scale = kubernetes_choice.MACHINES, kubernetes_choice.SCALE
    if cloud not in LOCAL_CLOUDS:
        fail(f"--cloud: there is no cloud {cloud!r} here; one of {', '.join(LOCAL_CLOUDS)}")
    clock = _need(clock_of).clock if clock_of is not None else ""
    if clock and time_scale is not None and time_scale != clocks.read(clock)[0]:
        fail(f"--time-scale: the clock of {clock_of} runs {clocks.read(clock)[0]:g} times as fast, not {time_scale:g}")
    region = region or _USUAL.get(cloud, REGIONS[cloud])
    if (address := find(state_dir)) is not None:
        if clock and (differs := clocks.apart(address.clock, clock)):
            fail(f"one runs here already, and {differs}: everspot-local down, then this command again")
        _say_up(address, as_json, "runs already")
        return
    _check_sold(cloud, region)
    boot = _boot_command(cloud, machines, image, boot_command, no_processes) or Options(state_dir).boot_command
    boot = kubernetes.boot_command if kubernetes else boot
    if not no_processes and sys.platform != "linux":
        fail("the agents of a local cloud's instances need Linux: run it in a virtual machine, or with --no-processes")
    usual_scale, usual_delays = (EMULATED_SCALE, emulated_delays(cloud)) if machines == "vm" else (SCALE, {})
    folder = data or Path(os.environ.get("EVERSPOT_DATA", ".everspot/data"))
    command = Command(
        state_dir=str(state_dir),
        port=port,
        region=region,
        scale=clocks.read(clock)[0] if clock else usual_scale if time_scale is None else time_scale,
        epoch=clocks.read(clock)[1] if clock else None,
        seed=seed,
        boot_command=None if no_processes else boot,
        data_dir=str(folder.resolve()),
        iam_enforce=iam_enforce,
        lenient=lenient,
        quotas=_quotas(cloud, quota or []),
        delays={**usual_delays, **_delays(cloud, delay or [])},
        disturbances=_disturbances(cloud, disturbance or []),
        script=str(script.resolve()) if script else None,
        trace=str(trace.resolve()) if trace else None,
        cloud=cloud,
        kubernetes=kubernetes.programs if kubernetes else None,
    )
    try:
        Script.load(command.script, command.trace, region)
    except BadScript as error:
        fail(str(error))
    if foreground:
        from everspot_local import daemon  # the other commands need not wait for it

        daemon.serve(command)
        return
    _say_up(start(command, state_dir, quiet=as_json), as_json, "is up")


def _check_sold(cloud: str, region: str) -> None:
    """Refuse a region in which the market would sell nothing, because no price of an instance type is known there."""
    catalogue = project_catalogue()
    if catalogue.offered(region):
        return
    priced = ", ".join(name for name in catalogue.regions if cloud_of_region(name) == cloud)
    fail(
        f"--region: no price of an instance type in {region} is known, so that nothing could be launched there. Take "
        f"one of {priced}, or start it in a project that has {FOLDER}/{file_name(cloud, region)}"
    )


@app.command()
def image(
    cloud: Annotated[str, typer.Option(help=f"Whose machines boot from it: {' or '.join(LOCAL_CLOUDS)}.")] = "aws",
    cache: Annotated[Path, typer.Option(help="Folder of images and their layers.")] = IMAGES,
    as_json: AsJson = False,
) -> None:
    """Bake the training image as a root tree, unless it is there, and test it; say where it is."""
    from everspot_local.image.bake import BakeFailed, bake, describe  # the other commands need not wait for them
    from everspot_local.image.inputs import Base, NotACheckout
    from everspot_local.machines.namespaces import why_not

    if cloud not in LOCAL_CLOUDS:
        fail(f"--cloud: there is no cloud {cloud!r} here; one of {', '.join(LOCAL_CLOUDS)}")
    if reason := why_not():
        fail(f"no image can be baked here: {reason}")
    try:
        folder = bake(project_root(Path.cwd()), cache.resolve(), cloud, Base(), lambda line: typer.echo(line, err=True))
    except (BakeFailed, NotACheckout) as error:
        fail(str(error))
    description = describe(folder)
    _print(json.dumps({"image": str(folder), "description": description}) if as_json else f"{folder}\n{description}")


@app.command()
def env(state_dir: StateDir = HERE, as_json: AsJson = False) -> None:
    """Print what a shell needs: `eval "$(everspot-local env)"`."""
    environment = variables(_need(state_dir), state_dir.resolve(), project_root(Path.cwd()))
    if as_json:
        _print(json.dumps(environment, indent=2))
    else:
        _print("\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items()))


@app.command()
def status(state_dir: StateDir = HERE, as_json: AsJson = False) -> None:
    """Show the market's time, its instances and its pools."""
    address = _need(state_dir)
    answer = {"endpoint": address.endpoint, "pid": address.pid, **_send_control(address, "status")}
    if as_json:
        _print(json.dumps(answer, indent=2))
        return
    screen.print(f"{answer['endpoint']}  market time {answer['now']}, {answer['time_scale']:g} times as fast")
    rows = [{**row, "on": f"{row['type']} {row['zone']} {row['market']}"} for row in answer["instances"]]
    _table(("id", "on", "state", "launched_at", "action_at", "pid"), rows)
    _table(("pool", "spot_usd", "on_demand_usd", "available", "used", "dry", "on_demand_dry"), answer["pools"])


@app.command()
def interrupt(
    instance: Annotated[str, typer.Argument(help="An id, `oldest`, `newest`, or a pool.")],
    no_notice: Annotated[bool, typer.Option("--no-notice", help="At once, like a crash.")] = False,
    rebalance: Annotated[str | None, typer.Option(help="Recommend to leave first, so long before the notice.")] = None,
    state_dir: StateDir = HERE,
    as_json: AsJson = False,
) -> None:
    """Take an instance away, with the usual notice."""
    body = {"instance": instance, "notice": not no_notice, "rebalance": rebalance}
    answer = _send_control(_need(state_dir), "interrupt", body)
    _print(json.dumps(answer) if as_json else f"{answer['instance']} {'is gone' if no_notice else 'has its notice'}")


@app.command()
def drought(
    pool: Annotated[str, typer.Argument(help="type/zone, where either may be `*`.")],
    duration: Annotated[str, typer.Option("--for", help="Market time.")] = "10m",
    market: Annotated[
        list[Market] | None, typer.Option(help="Which side of the pools, by default spot; for both, give it twice.")
    ] = None,
    state_dir: StateDir = HERE,
    as_json: AsJson = False,
) -> None:
    """Let pools run dry: nothing can be launched from them, and their Spot instances get notice."""
    address, sides = _need(state_dir), list(dict.fromkeys(market or [Market.SPOT]))
    answers = [
        _send_control(address, "drought", {"pool": pool, "for": duration, "market": side.value}) for side in sides
    ]
    answer = {"pools": answers[0]["pools"], "instances": [name for each in answers for name in each["instances"]]}
    struck, dry = ", ".join(answer["instances"]) or "none", ", ".join(answer["pools"])
    summary = f"dry for {duration}, {' and '.join(side.value for side in sides)}: {dry}; notice to: {struck}"
    _print(json.dumps(answer) if as_json else summary)


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="A workload of `everspot simulate`, or traces by pool.")],
    state_dir: StateDir = HERE,
    as_json: AsJson = False,
) -> None:
    """Set pools' depths and prices from a workload or a trace from now on; it starts again at its end."""
    from everspot_local.controls.schedules import load  # the other commands need not wait for numpy

    try:
        body = load(file, builtin())
    except BadScript as error:
        fail(str(error))
    answer = _send_control(_need(state_dir), "replay", body)
    _print(json.dumps(answer) if as_json else f"from {answer['began_at']} on: {', '.join(answer['pools'])}")


@app.command()
def meet(
    other: Annotated[Path, typer.Argument(help="The state folder of the other local cloud.")],
    state_dir: StateDir = HERE,
    as_json: AsJson = False,
) -> None:
    """Introduce two local clouds, so that each believes the other's identities and its new instances find the other."""
    here, remote = _need(state_dir), _need(other)
    if here.cloud == remote.cloud:
        fail(f"both are {here.cloud}: what two of the same cloud have in common, one of them has with several stacks")
    if differs := clocks.apart(here.clock, remote.clock):
        again = f"everspot-local up --cloud {here.cloud} --clock-of {other}"
        fail(f"{differs}, so the same deadline is two moments: everspot-local down here, then {again}")
    for recipient, peer in ((here, remote), (remote, here)):
        _send_control(recipient, "meet", {"cloud": peer.cloud, "endpoint": peer.endpoint})
    answer = {"met": [here.endpoint, remote.endpoint]}
    _print(json.dumps(answer) if as_json else f"{here.cloud} and {remote.cloud} know each other")


@app.command()
def down(state_dir: StateDir = HERE, as_json: AsJson = False) -> None:
    """Stop the local cloud and every process of its instances."""
    state_dir = state_dir.resolve()
    running = find(state_dir)
    if running is not None:
        os.kill(running.pid, signal.SIGTERM)
        if not wait_until_ended(running.pid):
            os.kill(running.pid, signal.SIGKILL)
            fail(f"process {running.pid} did not stop in {STOP_SECONDS:g} s and was killed")
    _print(json.dumps({"stopped": running is not None}) if as_json else "down" if running else "nothing was up")


_UsageError: Any = typer.BadParameter.__mro__[1]  # of click, or of the copy that typer contains


def main() -> None:
    """Entry point. With `--json` an error is a document of the same shape as those of `everspot`, on standard error."""
    degrade_output(sys.stdout, sys.stderr)
    as_json = "--json" in sys.argv[1:]
    try:
        if not as_json:
            app()
        else:
            sys.exit(app(standalone_mode=False) or 0)
    except Failed as error:
        _complain(str(error), error.code, as_json)
    except _UsageError as error:
        _complain(error.format_message(), 2, as_json)


def _complain(message: str, code: int, as_json: bool) -> NoReturn:
    if as_json:
        answer = {"error": message, "hint": "", "problems": [], "exit_code": code}
        typer.echo(json.dumps(answer, indent=2), err=True)
    else:
        complaints.print(message, style="red")
    sys.exit(code)


def _boot_command(
    cloud: str, machines: str, image: Path | None, stated: str, no_processes: bool
) -> tuple[str, ...] | None:
    """Return what an instance runs; None for the usual."""
    if machines not in MACHINES:
        fail(f"--machines: {machines!r} is none of {', '.join(MACHINES)}")
    if machines == "process":
        if image is not None:
            fail("--image: only --machines contained and vm boot one")
        return tuple(shlex.split(stated)) or None
    if stated or no_processes:
        fail(f"--machines {machines}: its instances boot the image, and run no --boot-command")
    if image is None:
        fail(f"--machines {machines}: --image names the folder of an image; `everspot-local image` bakes one")
    from everspot_local.machines import contained, namespaces, trees

    try:
        layers = contained.read_layers(image)
    except ValueError as error:
        fail(f"--image: {error}")
    baked_for = json.loads((image / trees.MANIFEST).read_text())["cloud"]
    if baked_for != cloud:
        fail(f"--image: {image} is an image for {baked_for}: everspot-local image --cloud {cloud}")
    if machines == "vm":
        program = _emulator(layers)
    elif reason := namespaces.why_not():
        fail(f"--machines contained: {reason}")
    else:
        program = (sys.executable, "-m", "everspot_local.machines.contained")
    return (*program, "--image", str(image.resolve()), *DOORS[cloud])


def _emulator(layers: list[Path]) -> tuple[str, ...]:
    """Return the program that emulates machines, with the kernel that an image's layers need."""
    from everspot_local.image.kernel import KernelUnavailable, fetch, find_suite
    from everspot_local.machines import contained, vm

    if reason := vm.why_not():
        fail(f"--machines vm: {reason}")
    try:
        kernel = fetch(find_suite(layers), IMAGES.resolve() / "kernels", contained.STATE)
    except KernelUnavailable as error:
        fail(f"--machines vm: {error}")
    return (sys.executable, "-m", "everspot_local.machines.vm", "--kernel", str(kernel.folder))


def _need(state_dir: Path) -> Address:
    try:
        return Address.read(state_dir.resolve())
    except NotRunning as error:
        fail(str(error))


def _quotas(cloud: str, entries: list[str]) -> dict[str, float]:
    try:
        values = {code: float(value) for code, _, value in (entry.partition("=") for entry in entries)}
        quotas(cloud, values)
    except ValueError as error:
        fail(f"--quota: {error}")
    return values


def _delays(cloud: str, entries: list[str]) -> dict[str, str]:
    values = {name: value for name, _, value in (entry.partition("=") for entry in entries)}
    try:
        DELAYS[cloud].changed(values)
    except ValueError as error:
        fail(f"--delay: {error}")
    return values


def _disturbances(cloud: str, entries: list[str]) -> dict[str, str]:
    values = {name: value for name, _, value in (entry.partition("=") for entry in entries)}
    try:
        DISTURBANCES[cloud].changed(values)
    except ValueError as error:
        fail(f"--disturbance: {error}")
    return values


def _send_control(address: Address, name: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    try:
        return address.send_control(name, body)
    except (NotRunning, ControlRefused) as error:
        fail(str(error))


def _say_up(address: Address, as_json: bool, status: str) -> None:
    if as_json:
        _print(json.dumps(asdict(address)))
    else:
        _print(f"the local cloud {status} at {address.endpoint} (process {address.pid})")
        _print(f"its time runs {address.time_scale:g} times as fast as yours")
        _print('next: eval "$(everspot-local env)"')


def _table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Ids are copied into other commands: they are shown in full, and what else is too long goes on below."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column in ("id", "pool"), overflow="fold")
    for row in rows:
        cells = ("" if row[c] is None else str(row[c]) for c in columns)
        table.add_row(
            *(cell.replace("T", " ") if c.endswith("_at") else cell for c, cell in zip(columns, cells, strict=True))
        )
    screen.print(table)


def _print(text: str) -> None:
    typer.echo(text)


if __name__ == "__main__":
    main()
