"""The inputs of `everspot simulate`: options and trace files, checked together. One error names all problems."""

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
from everspot_core.validation.problems import BadInputs, Problem, near
from everspot_simulator import GENERATORS, POLICIES, PoolCapacity, Regions, Setting, Trace, parse, starts

from everspot_cli.errors import CliError, Exit, list_problems

OPTIMAL = "optimal"
KNOWN = (*POLICIES, OPTIMAL)
"""The policies that `--policy` takes."""

DEFAULT_POLICY = "everspot"
DEFAULT_DAYS = 30.0
DEFAULT_GAP = 300.0
DEFAULT_CHECKPOINT_GB = 20.0
DEFAULT_EGRESS_USD = 0.02
"""Dollars for a gigabyte: the usual price between two regions of one cloud."""
MADE_UP = "synthetic:"
PICTURES = (".png", ".svg", ".pdf")
MOST_TICKS = 10_000_000
"""The most ticks of a synthetic trace: 95 years in steps of five minutes."""

MOST_HOURS = 1_000_000
"""The most hours of a job: more than a century, and within what dates and time steps can hold."""

MOST_STARTS = 1_000_000
"""The most starts that `--starts` takes."""

# The first two faults come from taking traces together as the pools of one job.
_OPTIONS = {"gap_seconds": "--pools", "prices": "--pools", "tick_seconds": "--tick", "price_ratios": "--region"}


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """The options as they were given."""

    files: tuple[Path, ...]
    synthetic: tuple[str, ...]
    days: float | None
    gap_seconds: float | None
    write_traces: Path | None
    job_hours: float
    deadline_hours: float
    changeover_hours: float
    price_ratio: float
    nodes: int
    tick: float | None
    pools: bool
    regions: tuple[str, ...]
    checkpoint_gb: float | None
    egress_usd: float | None
    starts: str
    seed: int
    policies: tuple[str, ...]
    compare: bool
    plot: Path | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One row of the answer: a trace, or the pools of a job, and the ticks at which the job is submitted."""

    paths: tuple[str, ...]
    traces: tuple[Trace, ...]
    capacity: PoolCapacity
    starts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulationRequest:
    """The simulation to run. `synthetic`: the synthetic traces among the cases."""

    setting: Setting
    policies: tuple[str, ...]
    cases: tuple[Case, ...]
    synthetic: tuple[Trace, ...]
    pools: bool
    seed: int


class _Faults:
    """Problems by option or file. Missing files are counted too: if nothing else is wrong, they set the exit code."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.missing = 0

    def add(self, field: str, problem: str) -> None:
        if Problem(field, problem) not in self.problems:
            self.problems.append(Problem(field, problem))

    def take(self, error: BadInputs, file: str = "") -> None:
        """Add the problems that the core found in a file, or in options, whose names follow from the core's fields."""
        for problem in error.problems:
            option = _OPTIONS.get(problem.path, f"--{problem.path.replace('_', '-')}")
            self.add(f"{file} {problem.path}".rstrip() if file else option, problem.reason)

    def raise_any(self) -> None:
        if not self.problems:
            return
        code = Exit.NOT_FOUND if self.missing == len(self.problems) else Exit.USER
        count = len(self.problems)
        message = "an input is wrong" if count == 1 else f"{count} inputs are wrong"
        raise CliError(
            f"simulate: {message}", code, hint="everspot simulate --help", problems=list_problems(self.problems)
        )


def check_options(options: SimulationOptions) -> SimulationRequest:
    """Check the options, and return the simulation that they request.

    Raises:
        CliError: naming every option and file that is wrong.
    """
    if not options.files and not options.synthetic:
        hint = "everspot simulate --trace FILE, or --synthetic NAME"
        raise CliError("simulate: there is no trace to run through", Exit.USAGE, hint=hint)
    faults = _Faults()
    setting = _check_setting(options, faults)
    policies = _policies(options, faults)
    count = _count(options, faults)
    _plot(options, faults)
    traces = _read(options.files, faults)
    synthetic_traces = _make(options, setting, faults)
    named_traces = [(t.name, t) for t in traces] + [(MADE_UP + t.name, t) for t in synthetic_traces]
    cases = []
    if setting is not None and named_traces:
        groups = [named_traces] if options.pools else [[trace] for trace in named_traces]
        regions = _regions(options, len(named_traces), setting, faults)
        cases = [_case(group, setting, regions, count, options.seed, faults) for group in groups]
    faults.raise_any()
    assert setting is not None  # noqa: S101 - without one there was a fault
    return SimulationRequest(
        setting=setting,
        policies=policies,
        cases=tuple(c for c in cases if c is not None),
        synthetic=tuple(synthetic_traces),
        pools=options.pools,
        seed=options.seed,
    )


def _check_setting(options: SimulationOptions, faults: _Faults) -> Setting | None:
    before = len(faults.problems)
    for name in ("job_hours", "deadline_hours", "changeover_hours"):
        hours = getattr(options, name)
        if MOST_HOURS < hours < math.inf:
            faults.add(f"--{name.replace('_', '-')}", f"must be <= {MOST_HOURS}; it is {hours:g}")
    if 0 < options.job_hours < 1 / 3600:
        faults.add("--job-hours", f"must be at least a second; it is {options.job_hours:g}")
    try:
        setting = Setting(
            job_hours=options.job_hours, deadline_hours=options.deadline_hours, nodes=options.nodes,
            changeover_hours=options.changeover_hours, price_ratio=options.price_ratio, tick_seconds=options.tick,
        )  # fmt: skip
    except BadInputs as error:
        faults.take(error)
    return None if len(faults.problems) > before else setting


def _policies(options: SimulationOptions, faults: _Faults) -> tuple[str, ...]:
    for name in options.policies:
        if name not in KNOWN:
            faults.add("--policy", f"{name!r} is not known{near(name, KNOWN)}; one of: {', '.join(KNOWN)}")
    chosen = options.policies or (() if options.compare else (DEFAULT_POLICY,))
    return tuple(dict.fromkeys((*chosen, *(KNOWN if options.compare else ()))))


def _count(options: SimulationOptions, faults: _Faults) -> int | None:
    """Starts for each trace; None for all of them."""
    if options.seed < 0:
        faults.add("--seed", f"must be >= 0; it is {options.seed}")
    if options.starts == "all":
        return None
    count = int(options.starts) if options.starts.isascii() and options.starts.isdigit() else 0
    if not 1 <= count <= MOST_STARTS:
        faults.add("--starts", f"must be a whole number from 1 to {MOST_STARTS}, or all; it is {options.starts}")
    return min(max(1, count), MOST_STARTS)


def _plot(options: SimulationOptions, faults: _Faults) -> None:
    if options.plot is None:
        return
    if options.plot.suffix.lower() not in PICTURES:
        faults.add("--plot", f"{options.plot}: must end in one of: {', '.join(PICTURES)}")
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        faults.add("--plot", "needs matplotlib, which is not installed: pip install 'everspot[simulate]'")


def _read(files: Sequence[Path], faults: _Faults) -> list[Trace]:
    traces = []
    for path in dict.fromkeys(files):
        try:
            traces.append(parse(path.read_text(encoding="utf-8"), str(path)))
        except FileNotFoundError:
            faults.missing += 1
            faults.add(str(path), "there is no such file")
        except BadInputs as error:
            faults.take(error, str(path))
        except (OSError, UnicodeDecodeError) as error:
            faults.add(str(path), f"cannot be read: {getattr(error, 'strerror', None) or error}")
    return traces


def _make(options: SimulationOptions, setting: Setting | None, faults: _Faults) -> list[Trace]:
    """Return the synthetic traces. A name that is given twice makes two traces, because its draws continue."""
    for option, value in (("--days", options.days), ("--gap-seconds", options.gap_seconds),
                          ("--write-traces", options.write_traces)):  # fmt: skip
        if value is not None and not options.synthetic:
            faults.add(option, "is for synthetic traces; --synthetic NAME makes one")
    unknown = [name for name in options.synthetic if name not in GENERATORS]
    for name in unknown:
        faults.add("--synthetic", f"{name!r} is not known{near(name, GENERATORS)}; one of: {', '.join(GENERATORS)}")
    length = _length(options, faults)
    if unknown or length is None or setting is None or options.seed < 0:
        return []
    ticks, gap = length
    # Each name has its own random draws: a trace does not depend on the other requested traces.
    draws = {name: np.random.default_rng([options.seed, *name.encode()]) for name in options.synthetic}
    synthetic_traces: list[Trace] = []
    for name in options.synthetic:
        synthetic_traces += GENERATORS[name](draws[name], ticks, gap, setting)
    return _make_names_unique(synthetic_traces)


def _length(options: SimulationOptions, faults: _Faults) -> tuple[int, timedelta] | None:
    """Return the number of ticks and the time between two of them; None if an option is wrong."""
    days = DEFAULT_DAYS if options.days is None else options.days
    gap = DEFAULT_GAP if options.gap_seconds is None else options.gap_seconds
    before = len(faults.problems)
    # The longest gap is a year.
    if not 1 <= gap <= 365 * 86400:
        faults.add("--gap-seconds", f"must be from 1 to {365 * 86400}; it is {gap:g}")
        gap = DEFAULT_GAP
    longest = gap * MOST_TICKS / 86400
    if not gap <= days * 86400 <= gap * MOST_TICKS:
        faults.add("--days", f"must be at least one tick, and at most {longest:.6g}; it is {days:g}")
    return None if len(faults.problems) > before else (round(days * 86400 / gap), timedelta(seconds=gap))


def _make_names_unique(traces: Sequence[Trace]) -> list[Trace]:
    """Return the traces, with a number appended to a name that occurs again."""
    occurrences: dict[str, int] = {}
    apart = []
    for t in traces:
        occurrences[t.name] = occurrences.get(t.name, 0) + 1
        name = t.name if occurrences[t.name] == 1 else f"{t.name}-again-{occurrences[t.name]}"
        apart.append(Trace(name=name, gap=t.gap, available=t.available, prices=t.prices))
    return apart


def _regions(options: SimulationOptions, pools: int, setting: Setting, faults: _Faults) -> Regions | None:
    """Return the regions of the pools; None without the option."""
    if not options.regions:
        for option, value in (("--checkpoint-gb", options.checkpoint_gb), ("--egress-usd", options.egress_usd)):
            if value is not None:
                faults.add(option, "is for several regions; --region NAME gives a pool its region")
        return None
    if not options.pools or len(options.regions) != pools:
        reason = f"needs --pools, and one region for each of the {pools} traces; it has {len(options.regions)}"
        faults.add("--region", reason)
        return None
    names, ratios = list[str](), dict[str, float]()
    for region in options.regions:
        name, _, ratio = region.partition(":")
        names.append(name)
        try:
            ratios.setdefault(name, setting.price_ratio)
            if ratio:
                ratios[name] = float(ratio)
        except ValueError:
            faults.add("--region", f"{region!r} must be a name, or a name and a number: us-east-1:3.1")
    try:
        return Regions.from_names(
            names,
            ratios,
            checkpoint_gb=DEFAULT_CHECKPOINT_GB if options.checkpoint_gb is None else options.checkpoint_gb,
            egress_usd=DEFAULT_EGRESS_USD if options.egress_usd is None else options.egress_usd,
        )
    except BadInputs as error:
        faults.take(error)
    return None


def _case(
    group: Sequence[tuple[str, Trace]],
    setting: Setting,
    regions: Regions | None,
    count: int | None,
    seed: int,
    faults: _Faults,
) -> Case | None:
    traces = tuple(t for _, t in group)
    try:
        capacity = PoolCapacity.from_traces(traces, setting, regions)
        at = starts(traces, setting, count, max(0, seed))
    except BadInputs as error:
        faults.take(error)
        return None
    return Case(paths=tuple(p for p, _ in group), traces=traces, capacity=capacity, starts=tuple(at.tolist()))


def write(traces: Sequence[Trace], folder: Path) -> list[str]:
    """Write traces as files; the lines to print about it.

    Raises:
        CliError: if the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for t in traces:
            (folder / f"{t.name}.json").write_text(t.to_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise CliError(f"--write-traces: {folder} cannot be written: {error.strerror or error}") from None
    return [f"Written to {folder}: {', '.join(f'{t.name}.json' for t in traces)}"]
