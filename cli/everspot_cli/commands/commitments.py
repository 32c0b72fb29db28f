"""`everspot cost commitments`: what a promise of use to the cloud would save."""

from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from everspot_cli.commands.options import Json, current_session
from everspot_cli.governance.commitment_advice import build_advice
from everspot_cli.report.gather import gather
from everspot_cli.report.terminal import percent
from everspot_cli.session import Session
from everspot_cli.tables import empty_table, money


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("commitments")(commitments)


def commitments(
    context: typer.Context,
    months: Annotated[
        int, typer.Option("--months", metavar="N", min=1, max=36, help="Months of 30 days to look back.")
    ] = 3,
    discount: Annotated[
        list[str] | None,
        typer.Option(
            "--discount",
            metavar="PLAN=PERCENT",
            help="A plan's discount from the list price, as the cloud quotes it; repeatable.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show which commitments would save: Savings Plans, Reserved Instances, committed use discounts.

    Commitments cover at most the floor of on-demand use, and are shown with break-even and past savings. Discounts that
    the cloud does not publish as one figure need --discount.
    """
    session = current_session(context, json)
    material = gather(session)
    answer = build_advice(material, session.manifest.cloud, months, discount or [])
    if session.json:
        session.answer(answer)
    else:
        _print(session, answer)


def _print(session: Session, answer: dict[str, Any]) -> None:
    console, rows = session.console, answer["plans"]
    console.print(f"{answer['hours']} full hours, {answer['begin']:%Y-%m-%d} to {answer['end']:%Y-%m-%d %H:%M} UTC")
    advised = [row for row in rows if row["advice"]]
    if advised:
        console.print(_table(advised))
    for row in advised:
        source = "as given" if row["discount_from"] == "given" else f"{row['source']}, {row['as_of']}"
        console.print(
            Text(f"{row['plan']}: {percent(100 * row['discount'])} off the list price ({source})", style="dim")
        )
    young = answer["hours"] < answer["least_hours"]
    if rows and young:
        console.print(f"Nothing is advised: {rows[0]['why_not']}.")
    for row in (row for row in rows if not row["advice"] and not young):
        floor = f"{money(row['floor_usd_per_hour'])} an hour at list price is its floor"
        most = f"; the cloud names {percent(100 * row['at_most'])} as the most" if row["at_most"] else ""
        sentence = f"{row['plan']} ({row['name']}), {row['scope']}: {floor}. Not advised: {row['why_not']}{most}."
        console.print(Text(sentence, style="dim"))
    if not rows:
        console.print("Nothing ran on-demand in these hours, so there is nothing to commit to.")
    notes = [*_whole(answer), *answer["notes"], session.scale_note()]
    console.print(Text("\n" + "\n".join(filter(None, notes)), style="dim"))


def _table(rows: list[dict[str, Any]]) -> RenderableType:
    table = empty_table(
        ("PLAN", "FOR", "COMMIT", "COVERS", "BREAK-EVEN", "USED", "WORST WEEK", "SAVED", "LAST MONTH", "OWED", "SURE"),
        text_columns=2,
        fold=("FOR",),
    )
    for row in rows:
        advice = row["advice"]
        count = f" ({advice['instances']} instances)" if advice["instances"] else ""
        table.add_row(
            row["plan"],
            row["scope"],
            f"{money(advice['pays_usd_per_hour'])}/h{count}",
            f"{money(advice['covers_usd_per_hour'])}/h",
            *(percent(100 * advice[key]) for key in ("break_even", "utilisation", "worst_week")),
            *(money(advice[key]) for key in ("saved_usd", "saved_last_month_usd", "owed_usd")),
            advice["sureness"],
        )
    return table


def _whole(answer: dict[str, Any]) -> list[str]:
    use, notes = answer["all_use"], []
    if use is not None:
        notes.append(f"All use, Spot included, at list price: {money(use['floor_usd_per_hour'])} an hour is its floor.")
        if use["spot_discount"] is not None:
            share, less = (percent(100 * use[key]) for key in ("spot_share", "spot_discount"))
            notes.append(
                f"{share} of it was on Spot, which cost {less} less than list: a commitment in its place saves only "
                "with a higher discount than that."
            )
    if answer["unpriced_hours"]:
        notes.append(f"{answer['unpriced_hours']:g} h have no known price and are in no figure.")
    return notes
