"""The lines with which a program that does not use the trainer library reports its steps: `EVERSPOT step=120 loss=0.3`.

Lines are parsed leniently: fields without a valid name or number are left out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from everspot_core.jobs.reported_values import MOST_STEPS

MARK = "EVERSPOT"
"""The word before the figures. The prefix of a logger or a progress bar may precede it."""
MOST_METRICS = 100
"""The most metrics that are taken from one line."""
LONGEST_LINE = 4096
"""The longest line that is read, in bytes. Longer lines are ignored."""
MOST_NAMES = 200
"""The most metrics of one program. Further names are left out."""
LONGEST_NAME = 100
"""The most characters of the name of a metric."""

_NAME = re.compile(rf"[A-Za-z_][\w./-]{{0,{LONGEST_NAME - 1}}}", re.ASCII)
_NOT_OF_A_NAME = re.compile(r"[^\w./-]+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,4})?", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf(?:inity)?)", re.IGNORECASE)
_COUNT = re.compile(r"\d{1,16}", re.ASCII)


@dataclass(frozen=True)
class StepReport:
    """The progress that one line reports.

    Attributes:
        step: optimizer steps since the beginning of the job.
        total_steps: the steps at which the program ends; None if not in the line.
        steps_per_epoch: the steps that read the data once; None if not in the line.
        metrics: the other figures by name. They may be infinite or not a number.
        left_out: the number of figures in the line beyond `MOST_METRICS`.
    """

    step: int
    total_steps: int | None = None
    steps_per_epoch: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    left_out: int = 0


def is_metric_name(name: str) -> bool:
    """Return whether a metric may have this name: letters, digits and `_./-`, at most 100, first a letter or `_`."""
    return _NAME.fullmatch(name) is not None


def to_metric_name(text: str) -> str:
    """Return a valid metric name for a library's name `text`: invalid characters become `_`."""
    name = _NOT_OF_A_NAME.sub("_", text)
    return (name if is_metric_name(name[:1]) else f"_{name}")[:LONGEST_NAME]


def parse_step_line(line: str) -> StepReport | None:
    """Return the report in a line of output; None if it reports no step.

    White space separates fields. The last field of a name counts. Fields that are no `name=number` are left out.
    """
    _, mark, text = line.rpartition(f"{MARK} ")
    if not mark:
        return None
    fields: dict[str, str] = {}
    for item in text.split():
        name, equals, value = item.partition("=")
        if equals and is_metric_name(name):
            fields[name] = value.rstrip(",;")
    step = _count(fields.pop("step", ""))
    if step is None:
        return None
    total_steps, steps_per_epoch = _count(fields.pop("total_steps", "")), _number(fields.pop("steps_per_epoch", ""))
    metrics = {name: number for name, value in fields.items() if (number := _number(value)) is not None}
    return StepReport(
        step,
        total_steps,
        steps_per_epoch if steps_per_epoch is not None and 0 < steps_per_epoch <= MOST_STEPS else None,
        dict(list(metrics.items())[:MOST_METRICS]),
        max(0, len(metrics) - MOST_METRICS),
    )


def format_step_lines(report: StepReport) -> list[str]:
    """Return the lines of a report, without line breaks: one, or more if one line would be too long or have too many
    metrics. Metrics with invalid names are left out."""
    counts = {"step": report.step, "total_steps": report.total_steps, "steps_per_epoch": report.steps_per_epoch}
    line = f"{MARK} " + " ".join(f"{name}={value!r}" for name, value in counts.items() if value is not None)
    lines, metrics = list[str](), 0
    for name, value in report.metrics.items():
        if not is_metric_name(name) or name in counts:
            continue
        figure = f" {name}={float(value)!r}"
        if metrics == MOST_METRICS or len(line) + len(figure) > LONGEST_LINE:
            lines.append(line)
            line, metrics = f"{MARK} step={report.step}", 0
        line += figure
        metrics += 1
    return [*lines, line]


def _count(text: str) -> int | None:
    number = int(text) if _COUNT.fullmatch(text) else None
    return number if number is not None and number <= MOST_STEPS else None


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text) else None
