"""The comment of a pull request, compared with golden files, from event logs of the real engine.

After an intended change, write them again with `EVERSPOT_GOLDEN=write pytest tests/review/test_review_comment.py -k
golden`, and read the difference.
"""

import os
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from estimates import estimate
from everspot_review.markdown import MARKER, comment, digests, summary
from everspot_review.report import EnvironmentReport, Exemption, PreviewOutcome

GOLDEN = Path(__file__).parent / "golden"
WRITE = os.environ.get("EVERSPOT_GOLDEN") == "write"
RUN = "https://forge.example/fleets/actions/runs/7"

Reports = Callable[..., EnvironmentReport]


@pytest.fixture(scope="module")
def cases(report: Reports) -> dict[str, list[EnvironmentReport]]:
    same, dearer = estimate(410, 410), estimate(410, 560)
    broken = report("aws-rules", estimate=same)
    excepted = broken.rules[1].model_copy(
        update={"excepted": Exemption(reason="the vendor's image needs two hops", until=date(2027, 1, 31))}
    )
    return {
        "no-change": [report("aws-unchanged", estimate=same)],
        "no-environment": [],
        "one-update": [report("aws-target-up", estimate=dearer), report("aws-unchanged", "aws-prod", estimate=same)],
        "protected-fleet": [
            report("aws-replace-protected", "aws-prod", estimate=same),
            report("aws-replace-unprotected", "aws-dev", estimate=same),
        ],
        "broken-rules": [broken.model_copy(update={"rules": (broken.rules[0], excepted, *broken.rules[2:])})],
        "failed": [report("aws-failed", estimate=estimate(410, None)), report("gcp-template", "gcp-dev")],
        "first": [report("aws-first", estimate=estimate(0, 410))],
        "destroyed": [report("gcp-destroy", "gcp-old", estimate=estimate(410, 0)), report("aws-destroy", "aws-old")],
        "secrets": [report("aws-secret")],
        "replaced": [report("aws-replace", "aws-prod", estimate=dearer), report("aws-target-up", estimate=same)],
        "forty": forty(report),
    }


def forty(report: Reports) -> list[EnvironmentReport]:
    kinds = ("aws-first", "aws-template", "aws-replace", "gcp-template", "aws-unchanged", "aws-rules", "aws-failed")
    bases = {kind: report(kind, estimate=estimate(400, None if kind == "aws-failed" else 500)) for kind in kinds}
    return [
        bases[kinds[number % len(kinds)]].model_copy(update={"environment": f"team-{number:02}"})
        for number in range(40)
    ]


NAMES = ("no-change", "no-environment", "one-update", "protected-fleet", "broken-rules", "failed", "first", "destroyed",
         "secrets", "replaced", "forty")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str, cases: dict[str, list[EnvironmentReport]]) -> None:
    text = comment(cases[name], run=RUN)
    file = GOLDEN / f"{name}.md"
    if WRITE:
        file.write_text(text)
    assert text == file.read_text()


def test_the_guide_shows_a_comment_as_it_is() -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/reading-a-review.md").read_text()
    _, _, behind = guide.partition("<!-- A comment. -->\n")
    shown, _, _ = behind.partition("<!-- Its end. -->")
    assert shown.strip() == "\n".join((GOLDEN / "replaced.md").read_text().splitlines()[2:]).strip()


def test_of_forty_environments_each_has_its_share_and_the_rest_is_in_the_summary(report: Reports) -> None:
    reports = forty(report)
    text, whole = comment(reports, run=RUN), summary(reports, run=RUN)
    assert 50_000 < len(text) <= 60_000 < len(whole)
    assert "more resources; all of them are in the run's summary" in text
    assert "run's summary" not in whole
    for environment_report in reports:
        assert (
            text.count(f"| `{environment_report.environment}` |") == 4
        )  # a row of the table, and three of what it costs
        if environment_report.outcome is not PreviewOutcome.UNCHANGED and environment_report.steps:
            assert f"<summary><code>{environment_report.environment}</code>" in text
    names = {step.name for environment_report in reports for step in environment_report.steps}
    assert [name for name in names if name not in whole] == []


def test_the_same_reports_in_another_order_are_the_same_comment(report: Reports) -> None:
    reports = forty(report)
    assert comment(reports, run=RUN) == comment(list(reversed(reports)), run=RUN)


def test_what_was_reviewed_is_read_from_the_second_line_alone(report: Reports) -> None:
    first_report, failed = report("aws-target-up", "a--><b>"), report("aws-failed", "eu")
    text = comment([first_report, failed])
    assert text.startswith(f"{MARKER}\n<!-- everspot-digests ")
    assert digests(text) == {"a--><b>": first_report.digest}
    assert text.splitlines()[1].count("-->") == 1
    forged = '<!-- everspot-digests {"prod":"00"} -->'
    assert digests(f"{MARKER}\nsomething\n{forged}") == digests(f"hello\n{forged}") == digests(MARKER) == {}
    assert digests(f"{MARKER}\n<!-- everspot-digests [1] -->") == {}
    assert digests(f'{MARKER}\n<!-- everspot-digests {{"prod": 7}} -->') == {}


def test_a_failed_preview_costs_nobody_knows_what_and_never_nothing(report: Reports) -> None:
    failed = report("aws-failed", estimate=estimate(410, 0))
    assert failed.estimate is not None and failed.estimate.after is None
    text = comment([failed])
    assert "`$410 → unknown`" in text and "$0" not in text
    assert failed.blocked and failed.digest == ""


def test_what_has_no_price_makes_a_figure_the_least_and_alone_unknown(report: Reports) -> None:
    def unpriced(usd: float) -> str:
        change = estimate(410, usd)
        assert change.after is not None
        after = change.after.model_copy(update={"unpriced": ("fleet",)})
        return comment([report("aws-target-up", estimate=change.model_copy(update={"after": after}))])

    assert "`$410 → at least $64`" in unpriced(64)
    nothing = unpriced(0)
    assert "`$410 → unknown`" in nothing and "$0" not in nothing.partition("#### What it costs")[0]
    assert "| all | `$328 / $410 / $615` | `unknown` |" in nothing


def test_a_report_is_the_same_after_it_was_stored(report: Reports) -> None:
    for name in ("aws-rules", "aws-failed", "gcp-destroy"):
        original = report(name, estimate=estimate(1, 2))
        assert EnvironmentReport.read(original.to_json()) == original


def test_hundreds_of_environments_still_have_a_row_each(report: Reports) -> None:
    original = report("aws-template", estimate=estimate(1, 2))
    many = [original.model_copy(update={"environment": f"team-{number:03}"}) for number in range(400)]
    text = comment(many, run=RUN)
    assert len(text) <= 60_000
    assert all(f"| `team-{number:03}` |" in text for number in range(400))
    assert "environments have no room in what an apply compares with" in text
    assert 0 < len(digests(text)) < 400
