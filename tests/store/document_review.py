"""Examples of the documents of reviews, with every field set: the report on a preview, and an applied change."""

from datetime import date

from document_parts import AT, SHA, every_field
from everspot_core.cluster.applied_change import AppliedChange, PullRequest
from everspot_core.estimate.model import CostFigures, CostPart, Estimate, Range
from everspot_review.report import (
    BrokenRule,
    Deed,
    Diagnostic,
    EnvironmentReport,
    Exemption,
    JobEffect,
    PreviewOutcome,
    PropertyChange,
    ResourceStep,
)


def an_estimate() -> Estimate:
    usd = every_field(Range, low=80.5, expected=90.25, high=120, on_demand=210)
    part = every_field(CostPart, name="c-fleet-spot", kind="spot instances", team="vision", range=usd)
    figures = every_field(CostFigures, total=usd, teams={"vision": usd}, parts=(part,), unpriced=("queue",))
    details = {"prices_as_of": date(2026, 1, 1), "by_use": ("requests",), "unknown": ("queue: no price",)}
    estimate: Estimate = every_field(Estimate, before=figures, after=figures, **details)
    return estimate


def a_change() -> AppliedChange:
    pull = every_field(PullRequest, number=7, title="More of it", url="https://forge.test/a/b/pulls/7", author="ann")
    change: AppliedChange = every_field(
        AppliedChange, at=AT, environment="dev", revision="c" * 40, digest=SHA, pull_request=pull,
        estimate=an_estimate(), steps={"create": 2, "replace": 1}, outcome="failed",
    )  # fmt: skip
    return change


def a_report() -> EnvironmentReport:
    change = every_field(PropertyChange, path="tags.Team", before='"a"', after='"b"', replaces=True)
    step = every_field(
        ResourceStep, urn="urn:pulumi:dev::p::aws:s3/bucket:Bucket::b", type="aws:s3/bucket:Bucket", name="b",
        deed=Deed.REPLACE, changes=(change,), protected=True, stateful=True, retained=True,
    )  # fmt: skip
    rule = every_field(
        BrokenRule, rule="queue-encrypted", level="mandatory", message="is not encrypted", severity="high",
        resource="q", excepted=every_field(Exemption, reason="a test", until=date(2026, 12, 31)),
    )  # fmt: skip
    report: EnvironmentReport = every_field(
        EnvironmentReport, environment="dev", stack="dev", outcome=PreviewOutcome.CHANGES, base="a" * 40, head="b" * 40,
        steps=(step,), stays=61, first=True, whole=False, rules=(rule,), passed=("metadata-v2",),
        diagnostics=(every_field(Diagnostic, severity="warning", text="old", resource="b"),),
        effects=(every_field(JobEffect, resource="b", text="deleted", harm=True),), estimate=an_estimate(), digest=SHA,
    )  # fmt: skip
    return report
