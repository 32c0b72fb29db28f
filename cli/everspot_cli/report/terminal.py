"""The report for the terminal."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from everspot_core.counting import counted, first_few
from everspot_core.jobs.visit_records import TripEnd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from everspot_cli.machine_use import MACHINE_COLUMNS, machine_cells
from everspot_cli.report.changeovers import changeovers
from everspot_cli.report.continued_runs import CONTINUED_COLUMNS, continued_cells
from everspot_cli.report.early_stops import EARLY_STOP_COLUMNS, early_stop_cells
from everspot_cli.report.reused_stages import REUSED_COLUMNS, describe_saving, reused_cells
from everspot_cli.report.shard_traffic import describe_streamed
from everspot_cli.report.shares import UNTAGGED
from everspot_cli.tables import NARROW, duration, empty_table, facts, least, money, stamp, state_text


def redone(row: dict[str, Any], key: str = "steps_redone") -> str:
    """Steps redone, as a lower bound if the exact count is unknown; of a program that reports none, the time."""
    if not row[key] and row.get("redone_seconds") and (row[key] is None or row.get("from_zero")):
        return duration(row["redone_seconds"])
    return "—" if row[key] is None else f"{'≥ ' if row['steps_redone_is_least'] else ''}{row[key]}"


def percent(value: float | None) -> str:
    """Return a share in percent; `—` if there is nothing to compare with."""
    return "—" if value is None else f"{value if abs(value) >= 0.05 else 0.0:.1f} %"


def several_days(report: dict[str, Any]) -> bool:
    """Return whether the report spans several days, so that moments need their day."""
    moments = [job["submitted_at"] for job in report["jobs"]] + [i["launched_at"] for i in report["instances"]]
    moments += [stroke["at"] for stroke in report["interruptions"]] + [report["as_of"]]
    return len({moment[:10] for moment in moments if moment}) > 1


def clock(text: str | None, report: dict[str, Any]) -> str:
    """Return a moment of the report for a row of a table."""
    return stamp(datetime.fromisoformat(text), dated=several_days(report)) if text else "—"


def page(report: dict[str, Any], width: int) -> RenderableType:
    """Return the whole report, for a terminal of this many columns."""
    parts: list[RenderableType] = [_head(report), Text(), _jobs(report, width)]
    if report["interruptions"]:
        parts += [Text("\nInterruptions", style="bold"), _interruptions(report, width)]
    if early_stops := early_stop_cells(report["jobs"]):
        parts += [Text("\nStopped early", style="bold"), _rows(EARLY_STOP_COLUMNS, early_stops, 2, (0, 1))]
    if reused := reused_cells(report["jobs"]):
        parts += [Text("\nStages not run again", style="bold"), _rows(REUSED_COLUMNS, reused, 2, (0, 1))]
    if continued := continued_cells(report["jobs"]):
        parts += [Text("\nContinued runs", style="bold"), _rows(CONTINUED_COLUMNS, continued, 2, (0, 1, 4))]
    if machines := machine_cells(report["jobs"]):
        parts += [Text("\nUse of the machines", style="bold"), _rows(MACHINE_COLUMNS, machines, 3, (0, 2))]
    for key, rows in report["cost_by_tag"].items():
        if len(rows) > 1 or rows[0]["value"] != UNTAGGED:
            parts += [Text(f"\nCost by {key}", style="bold"), _shares(key, rows)]
    if report["sweeps"]:
        parts += [Text("\nSweeps", style="bold"), _sweeps(report["sweeps"])]
    if report["changeovers"]:
        parts += [Text("\nChangeovers", style="bold"), changeovers(report["changeovers"])]
    parts += [Text("\nWhere the hours went", style="bold"), _usage(report), Text(), _small_print(report)]
    return Group(*parts)


def _head(report: dict[str, Any]) -> RenderableType:
    waits, whole = report["notice_to_durable_seconds"], report["scope"] == "cluster"
    breakdown = (
        f"{money(report['jobs_cost_usd'])} jobs, {money(report['idle_and_boot_cost_usd'])} boot and idling "
        f"(scheduler: {money(report['scheduler_cost_usd'])})"
    )
    listed = (
        f"{money(report['jobs_on_demand_cost_usd'])} jobs, {money(report['idle_and_boot_on_demand_cost_usd'])} "
        "boot and idling"
    )
    plan = report["savings_percent_if_billed"]
    saved = Text(percent(plan), style="bold green" if (plan or 0) >= 0 else "bold red")
    alone = f"; jobs alone {percent(report['jobs_savings_percent'])}" if whole else ""
    saved.append(f"  {money(report['savings_usd'] - report['free_usd'])}{alone}", style="")
    same, scale = "fleet and useful work" if whole else "useful work", report["time_scale"]
    return facts(
        [
            ("report of", f"cluster {report['cluster']}" if whole else report["scope"]),
            ("as of", f"{report['as_of'][:19].replace('T', ' ')} UTC"),
            ("cost", _cost(report)),
            ("  made of", breakdown if whole else None),
            ("abroad", _abroad(report)),
            ("on-demand", f"{money(report['on_demand_cost_usd'])} for the same {same}, never interrupted"),
            ("  made of", listed if whole else None),
            ("saved", saved),
            ("  free beside it", describe_free_hours(report)),
            ("cache saved", describe_saving(report)),
            ("streamed", describe_streamed(report)),
            ("interruptions", f"{len(report['interruptions'])}"),
            ("steps redone", f"{report['steps_redone_after_notice']} after a notice, "
                             f"{redone(report, 'steps_redone_total')} in total"),
            ("notice → durable", ", ".join(f"{s:.1f} s" for s in waits) if waits else None),
            ("time redone", duration(report["redone_seconds"]) if report["redone_seconds"] else None),
            ("time lost", duration(report["lost_seconds"])),
            ("accuracy", _accuracy(report)),
            ("time scale", f"{scale:g} times as fast as real time; all times are the market's" if scale != 1 else None),
        ]
    )  # fmt: skip


def _abroad(report: dict[str, Any]) -> str | None:
    """Return the cost of visits to other clusters, which no other sum contains. None without visits."""
    if not any(job["trips"] for job in report["jobs"]):
        return None
    ran = [trip for job in report["jobs"] for trip in job["trips"] if trip["end"] in (TripEnd.RETURNED, TripEnd.ENDED)]
    unknown = sum(trip["usd"] is None for trip in ran)
    least, lacking = ("≥ ", f" ({counted(unknown, 'visit')} without a known bill)") if unknown else ("", "")
    way = f"about {money(report['egress_usd'])} for the way: beside it"
    return f"{least}{money(report['abroad_usd'])} at other clusters{lacking}, {way}"


def _cost(report: dict[str, Any]) -> Text:
    reasons = unknown_parts(report)
    if reasons:
        return Text(f"{least(report['cost_usd'], False)}  {'; '.join(reasons)}", style="bold red")
    return Text(money(report["cost_usd"]), style="bold")


def describe_free_hours(report: dict[str, Any]) -> str | None:
    """Describe the further saving by spot hours that were not billed. Nobody can count on it."""
    if not report["free_usd"]:
        return None
    return (
        f"{money(report['free_usd'])}: spot taken within its free time, not billed; "
        f"{percent(report['savings_percent'])} saved with it"
    )


def unknown_parts(document: dict[str, Any]) -> list[str]:
    """Return why the cost in a document is a lower bound: hours without a price, and lengths that nobody knows."""
    hours, endless = document["unpriced_hours"], document["unknown_lengths"]
    reasons = [f"{hours:g} h have no price"] if hours else []
    return reasons + ([f"how long {first_few(endless, 5)} ran is not known"] if endless else [])


def describe_lower_bounds(report: dict[str, Any]) -> list[str]:
    """Return a sentence for each reason why sums are lower bounds and the bill will be higher."""
    sentences, endless = [], report["unknown_lengths"]
    if report["unpriced_hours"]:
        sentences.append(
            f"No price is known of {report['unpriced_hours']:g} instance hours: every sum is less than what will be "
            "billed. `everspot cost prices refresh` reads the cloud's price lists; a type that they lack is declared "
            "with its price."
        )
    if endless:
        sentences.append(
            f"Nobody reported the end of {first_few(endless, 5)}: sums have the least that the cloud bills for "
            f"{'it' if len(endless) == 1 else 'them'}, and the bill may be higher."
        )
    return sentences


def _accuracy(report: dict[str, Any]) -> str | None:
    """Return the lowest accuracy of the jobs, with a note if there are several."""
    if report["accuracy"] is None:
        return None
    several = sum(job["accuracy"] is not None for job in report["jobs"]) > 1
    return f"{100 * report['accuracy']:.2f} %{', the lowest of the jobs' if several else ''}"


def _jobs(report: dict[str, Any], width: int) -> RenderableType:
    wide = width >= NARROW
    columns: tuple[str, ...]
    columns = ("JOB", "STATE", "TOT. DURATION", "JOB DURATION", "#INT.", "LOST", "REDONE", "COST", "ON-DEMAND", "SAVED")
    if not wide:
        columns = ("JOB", "STATE", "DURATION\n#INT.", "LOST\nREDONE", "COST\nON-DEMAND", "SAVED")
    table = empty_table((*columns, "METRICS") if wide else columns, text_columns=2, fold=("JOB", "METRICS"))
    for job in report["jobs"]:
        figures = (
            (duration(job["job_duration_seconds"]), str(job["interruptions"])),
            (duration(job["lost_seconds"]), redone(job)),
            (least(job["cost_usd"], job["cost_known"]), money(job["on_demand_cost_usd"])),
        )
        name, saved = (job["job_id"], state_text(job["state"])), percent(job["savings_percent"])
        if wide:
            table.add_row(
                *name, duration(job["total_duration_seconds"]), *chain.from_iterable(figures), saved, _metrics(job)
            )
        else:
            table.add_row(*name, *("\n".join(pair) for pair in figures), saved)
    if wide:
        return table
    metric_rows = [(job["job_id"], _metrics(job)) for job in report["jobs"] if job["metrics"]]
    return Group(table, Text("\nMetrics", style="bold"), facts(metric_rows)) if metric_rows else table


def _metrics(job: dict[str, Any]) -> str:
    numbers = {k: v for k, v in job["metrics"].items() if isinstance(v, int | float)}
    return ", ".join(f"{name} {value:.4g}" for name, value in sorted(numbers.items())[:3]) or "—"


def _interruptions(report: dict[str, Any], width: int) -> Table:
    wide = width >= NARROW
    stacked = "JOB\nINSTANCE\n→ RESUMED ON"
    table = (
        empty_table(("AT", "JOB", "KIND", "INSTANCE", "RESUMED ON", "DURABLE AFTER", "CHANGEOVER", "REDONE"),
                    text_columns=5, fold=("JOB", "INSTANCE", "RESUMED ON"))
        if wide
        else empty_table(("AT", stacked, "KIND", "DURABLE\nAFTER", "CHANGE-\nOVER", "REDONE"), text_columns=3,
                   fold=(stacked,))
    )  # fmt: skip
    for stroke in report["interruptions"]:
        durable = stroke["notice_to_durable_seconds"]
        lost_instance, went_on = stroke["instance_id"] or "—", resumed_on(report, stroke)
        table.add_row(
            clock(stroke["at"], report),
            *(
                [stroke["job_id"], stroke["kind"], lost_instance, went_on]
                if wide
                else [f"{stroke['job_id']}\n{lost_instance}\n→ {went_on}", stroke["kind"]]
            ),
            "—" if durable is None else f"{durable:.1f} s",
            duration(stroke["changeover_seconds"]),
            redone(stroke),
        )
    return table


def resumed_on(report: dict[str, Any], stroke: dict[str, Any]) -> str:
    """Return the instance that resumed a job after an interruption. A job that has ended does not resume."""
    states = {job["job_id"]: job["state"] for job in report["jobs"]}
    over = states.get(stroke["job_id"]) in ("FAILED", "CANCELLED", "SUCCEEDED", "SKIPPED")
    return str(stroke["resumed_on"] or ("never" if over else "not yet"))


def _rows(columns: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int, folded: Sequence[int]) -> Table:
    """Return a table of these rows. `text_columns`: how many of the first columns are texts; `folded`: columns whose
    cells may have several lines."""
    names = [name.upper() for name in columns]
    table = empty_table(names, text_columns=text_columns, fold=[names[index] for index in folded])
    for cells in rows:
        table.add_row(*cells)
    return table


def _shares(key: str, rows: list[dict[str, Any]]) -> Table:
    table = empty_table(
        (key.upper(), "JOBS", "LOST", "COST", "ON-DEMAND", "SAVED"), text_columns=1, fold=(key.upper(),)
    )
    for row in rows:
        table.add_row(
            row["value"],
            str(row["jobs"]),
            duration(row["lost_seconds"]),
            least(row["cost_usd"], row["cost_known"]),
            money(row["on_demand_cost_usd"]),
            percent(row["savings_percent"]),
        )
    return table


def _sweeps(rows: list[dict[str, Any]]) -> Table:
    table = empty_table(
        ("SWEEP", "METRIC", "TRIALS", "USEFUL", "COST", "A TRIAL", "A USEFUL ONE"),
        text_columns=2,
        fold=("SWEEP", "METRIC"),
    )
    for cells in sweep_cells(rows):
        table.add_row(*cells)
    return table


def sweep_cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return a row for each sweep, and below it one for each of its rungs."""
    cells = []
    for row in rows:
        cells.append([row["sweep"], row["metric"], *_sweep_figures(row)])
        for rung in row["rungs"]:
            name = f"{row['sweep']}, rung {rung['rung']} ({rung['value']})"
            cells.append([name, row["metric"], *_sweep_figures(rung)])
    return cells


def _sweep_figures(row: dict[str, Any]) -> list[str]:
    """Return the cells of a sweep after its name: trials, useful trials, then dollars in total, per trial and per
    useful trial."""
    return [
        str(row["trials"]),
        str(row["useful_trials"]),
        money(row["cost_usd"]),
        money(row["cost_per_trial_usd"]),
        money(row["cost_per_useful_trial_usd"]),
    ]


def _usage(report: dict[str, Any]) -> Table:
    table = empty_table(
        ("MARKET", "TYPE", "ZONE", "INSTANCES", "HOURS", "MEAN $/H", "COST"), text_columns=3, fold=("TYPE", "ZONE")
    )
    for row in report["usage"]:
        mean = row["mean_usd_per_hour"]
        table.add_row(
            row["market"],
            row["instance_type"],
            row["zone"],
            str(row["instances"]),
            f"{row['hours']:.3f}",
            "—" if mean is None else f"{mean:.4f}",
            money(row["cost_usd"]),
        )
    return table


def _small_print(report: dict[str, Any]) -> Text:
    lines = [f"Not in these figures: {', '.join(report['left_out'])}.", *where_prices_come_from(report)]
    lines += describe_lower_bounds(report)
    return Text("\n".join(lines), style="dim")


def where_prices_come_from(report: dict[str, Any]) -> list[str]:
    """Return a sentence on the source and age of every price, and on every assumption."""
    lines = ["Spot prices: what the cloud stated for each moment."] if report["spot_hours"] else []
    sources: dict[tuple[str, str], list[str]] = {}
    for price in report["list_prices"]:
        types = sources.setdefault((price["source"], price["age"]), [])
        types += [price["instance_type"]] * (price["instance_type"] not in types)
    lines += [f"List prices of {', '.join(types)}: {source}, {age}." for (source, age), types in sources.items()]
    return lines + [f"Note: {note}." for note in report["notes"]]
