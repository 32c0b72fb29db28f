"""Hostile values in reports are only ever rendered as text, and no comment exceeds its limit.

An independent Markdown parser, from `rich`, shows the comment's structure.
"""

from collections.abc import Callable
from datetime import date
from html.parser import HTMLParser
from typing import Any

import pytest
from estimates import span
from everspot_core.estimate.model import CostFigures, Estimate
from everspot_review.markdown import COMMENT_AT_MOST, MARKER, comment, digests, summary
from everspot_review.markdown.safe import code, fence, visible
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
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

ATTACKS = (
    "@everybody", "@org/team", "```", "`````", "~~~", "`", "``", "</details>", "<details>", "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>", "<!--", "-->", "--!>", "| a | b |", "|", "\\|", "\n", "\n\n", "\r\n", "\n# title\n",
    "\n- item", "\n> quote", "\n***\n", "[link](https://evil.example)", "![i](https://evil.example/p.png)",
    "https://evil.example/", "www.evil.example", "me@evil.example", "#1", "org/repo#2", "GH-3", "$x$", "$$\nx\n$$",
    "**bold**", "_em_", "~~gone~~", ":tada:", "&lt;b&gt;", "&#64;org", "\u202e", "\u2028", "\x00", "\x1b[31m", "\ud800",
    "\u200b", MARKER, '<!-- everspot-digests {"prod":"00"} -->', "\t", "    indented", "[x]: https://evil.example",
    "[^1]: note", "deadbeefdeadbeef", "😀", "é", "",
)  # fmt: skip
HOSTILE = st.lists(st.sampled_from(ATTACKS) | st.text(max_size=6), max_size=5).map("".join)
LONG = st.builds(lambda text, times: text * times, HOSTILE, st.sampled_from((1, 1, 1, 30, 300)))

CHANGES = st.builds(
    PropertyChange, path=HOSTILE, before=st.none() | LONG, after=st.none() | LONG, replaces=st.booleans()
)
STEPS = st.builds(
    ResourceStep,
    urn=HOSTILE,
    type=HOSTILE,
    name=LONG,
    deed=st.sampled_from(Deed),
    changes=st.lists(CHANGES, max_size=3).map(tuple),
    protected=st.booleans(),
    stateful=st.booleans(),
    retained=st.booleans(),
)
EXCEPTED = st.none() | st.builds(Exemption, reason=HOSTILE, until=st.just(date(2027, 1, 1)))
RULES = st.builds(
    BrokenRule,
    rule=HOSTILE,
    level=st.sampled_from(("mandatory", "advisory")),
    message=LONG,
    severity=HOSTILE,
    resource=HOSTILE,
    excepted=EXCEPTED,
)
SAID = st.builds(Diagnostic, severity=st.sampled_from(("error", "warning")), text=LONG, resource=HOSTILE)
EFFECTS = st.builds(JobEffect, resource=HOSTILE, text=HOSTILE, harm=st.booleans())
SIDES = st.none() | st.dictionaries(HOSTILE, st.integers(0, 900), min_size=1, max_size=3).map(
    lambda teams: CostFigures(
        total=span(float(sum(teams.values()))), teams={team: span(float(usd)) for team, usd in teams.items()}, parts=()
    )
)
ESTIMATES = st.none() | st.builds(
    Estimate,
    before=SIDES,
    after=SIDES,
    prices_as_of=st.just(date(2026, 11, 1)),
    by_use=st.lists(HOSTILE, max_size=2).map(tuple),
    unknown=st.lists(HOSTILE, max_size=2).map(tuple),
)
REPORTS = st.builds(
    EnvironmentReport,
    environment=LONG,
    stack=HOSTILE,
    outcome=st.sampled_from(PreviewOutcome),
    base=HOSTILE,
    head=HOSTILE,
    steps=st.lists(STEPS, max_size=4).map(tuple),
    first=st.booleans(),
    rules=st.lists(RULES, max_size=2).map(tuple),
    passed=st.lists(HOSTILE, max_size=2).map(tuple),
    diagnostics=st.lists(SAID, max_size=2).map(tuple),
    effects=st.lists(EFFECTS, max_size=2).map(tuple),
    estimate=ESTIMATES,
    digest=st.sampled_from(("", "0" * 64, "1" * 64)),
)

OURS = {
    "What this change does", "Look at this first", "What it costs",
}  # fmt: skip


class Tags(HTMLParser):
    """The tags of a piece of HTML, and its text outside of `code`."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.loose: list[str] = []
        self.comments: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert attrs == []
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] != ["code"]:
            self.loose.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def check(text: str, reports: list[EnvironmentReport]) -> None:
    """The comment has our structure and nothing else that a reader of Markdown would do something with."""
    tokens = MarkdownIt("commonmark", {"linkify": False}).enable(["table", "strikethrough"]).parse(text)
    html = "".join(token.content for token in tokens if token.type == "html_block")
    page = Tags(html)
    assert (len(page.comments), text.count("\n") == len(text.splitlines()), text.endswith("\n")) == (2, True, True)
    opened = page.tags.count("details")
    assert page.tags == ["details", "summary", "code", "/code", "/summary", "/details"] * opened
    loose = "".join(page.loose)
    headings = [tokens[n + 1].content for n, token in enumerate(tokens) if token.type == "heading_open"]
    assert set(headings) <= OURS and headings[0] == "What this change does" and len(set(headings)) == len(headings)
    for token in tokens:
        assert token.type not in ("blockquote_open", "hr", "code_block", "ordered_list_open")
        for inner in token.children or ():
            if inner.type == "text":
                loose += f"\n{inner.content}"
            if inner.type == "link_open":
                assert inner.attrs == {"href": "https://forge.example/run/7"}
            assert inner.type in ("text", "code_inline", "softbreak", "link_open", "link_close")
    for bad in (
        "`",
        "@",
        "<",
        "http",
        "www",
        "#",
        "$",
        "*",
        "~",
        "evil",
        MARKER,
        "\u202e",
        "\x00",
        "deadbeef",
        ":tada:",
    ):
        assert bad not in loose, bad
    rows = _rows_of_the_first_table(tokens)
    assert rows == len(reports)


def _rows_of_the_first_table(tokens: list[Any]) -> int:
    types = [token.type for token in tokens]
    assert types.index("table_open") < min(
        [n for n, kind in enumerate(types) if kind in ("fence", "bullet_list_open")], default=len(types)
    )
    body = types[types.index("tbody_open") : types.index("tbody_close")]
    return body.count("tr_open")


def everywhere(text: str) -> EnvironmentReport:
    """Return a report with this text in every field."""
    figures = CostFigures(total=span(9), teams={text: span(4), f"{text}2": span(5)}, parts=())
    step = ResourceStep(
        urn=text, type=text, name=text, deed=Deed.REPLACE, protected=True, stateful=True,
        changes=(PropertyChange(path=text, before=text, after=text, replaces=True),),
    )  # fmt: skip
    rule = BrokenRule(rule=text, level="mandatory", message=text, severity=text, resource=text)
    excepted = Exemption(reason=text, until=date(2027, 1, 1))
    return EnvironmentReport(
        environment=text,
        stack=text,
        outcome=PreviewOutcome.FAILED,
        base=text,
        head=text,
        steps=(step, step.model_copy(update={"protected": False, "stateful": False})),
        rules=(rule, rule.model_copy(update={"excepted": excepted})),
        passed=(text,),
        diagnostics=(
            Diagnostic(severity="error", text=text, resource=text),
            Diagnostic(severity="error", text=text),
            Diagnostic(severity="warning", text=text, resource=text),
        ),
        effects=(JobEffect(resource=text, text=text, harm=True), JobEffect(resource=text, text=text)),
        estimate=Estimate(before=None, after=figures, prices_as_of=date(2026, 11, 1), by_use=(text,), unknown=(text,)),
        digest=text,
    )


@pytest.mark.parametrize(
    "text", [*ATTACKS, "a\n```\nb", "x `y` </code></summary></details> @z", "1. a", "- a", "a: @b"]
)
def test_an_attack_in_every_place_stays_a_text(text: str) -> None:
    rendered = comment([everywhere(text)], run="https://forge.example/run/7")
    check(rendered, [everywhere(text)])
    assert digests(rendered) in ({}, {text: text})


@settings(max_examples=settings().max_examples // 4)
@given(st.lists(REPORTS, min_size=1, max_size=4))
def test_no_value_becomes_markup_and_nothing_is_too_long(reports: list[EnvironmentReport]) -> None:
    text = comment(reports, run="https://forge.example/run/7")
    assert len(text) <= len(text.encode("utf-16-le")) // 2 <= COMMENT_AT_MOST
    check(text, reports)
    whole = summary(reports, run="https://forge.example/run/7")
    assert len(whole.encode()) <= 1_000_000
    expected_digests: dict[str, str] = {}
    for environment_report in sorted(reports, key=lambda report: report.environment):
        if environment_report.digest:
            expected_digests.setdefault(environment_report.environment, environment_report.digest)
    assert set(digests(text)) <= set(expected_digests)
    assert all(expected_digests[name] in {r.digest for r in reports} for name in digests(text))


@settings(max_examples=settings().max_examples // 20)
@given(st.lists(REPORTS, min_size=1, max_size=3), st.integers(1, 12), st.integers(2, 60))
def test_many_and_large_reports_are_cut_fairly(reports: list[EnvironmentReport], times: int, steps: int) -> None:
    large = [
        report.model_copy(update={"environment": f"{report.environment[:20]}-{number}", "steps": report.steps * steps})
        for number, report in enumerate(reports * times)
    ]
    text = comment(large)
    assert len(text.encode("utf-16-le")) // 2 <= COMMENT_AT_MOST
    check(text, large)


@given(HOSTILE)
def test_a_code_span_holds_all_of_it(text: str) -> None:
    (paragraph,) = [t for t in MarkdownIt("commonmark").parse(f"a {code(text)} b") if t.type == "inline"]
    assert [inner.type for inner in paragraph.children or ()] == ["text", "code_inline", "text"]


@example(["```"])
@example(["a", "`````", "```"])
@given(st.lists(HOSTILE, max_size=4))
def test_a_fence_holds_all_of_it(lines: list[str]) -> None:
    (token,) = MarkdownIt("commonmark").parse("\n".join(fence(lines, "diff")))
    assert (token.type, token.info) == ("fence", "diff")
    assert token.content.splitlines() == [visible(line) for line in lines]


@pytest.mark.parametrize("text", ["\u202eabc", "a\x1b[31mb", "a\u200bb", "\ud800"])
def test_what_cannot_be_seen_is_written_out(text: str) -> None:
    assert visible(text).isprintable() and "\\u" in visible(text)
    visible(text).encode()


@pytest.mark.parametrize(
    "run", ["javascript:alert(1)", "https://x.example/) [a](https://evil.example", "http://x y", "", "https://a\nb"]
)
def test_a_link_that_is_none_is_left_out(run: str, report: Callable[..., EnvironmentReport]) -> None:
    text = comment([report("aws-unchanged")], run=run)
    assert "](" not in text


def test_a_million_bytes_hold_what_there_is_and_no_more(report: Callable[..., EnvironmentReport]) -> None:
    original = report("aws-first")
    many = [original.model_copy(update={"environment": f"e{n}", "steps": original.steps * 16}) for n in range(40)]
    text = summary(many)
    assert 900_000 < len(text.encode()) <= 1_000_000
