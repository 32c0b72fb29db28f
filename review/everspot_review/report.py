"""The report on one environment: the findings of a preview, as a document that commands pass to each other.

Nothing in it is secret: values are texts for people, cut and masked at their source.
"""

from datetime import date
from enum import StrEnum
from typing import Literal

from everspot_core.counting import counted
from everspot_core.documents import Document, Stored
from everspot_core.estimate.model import Estimate


class PreviewOutcome(StrEnum):
    """The result of a preview. FAILED: the steps of an update are unknown."""

    UNCHANGED = "unchanged"
    CHANGES = "changes"
    FAILED = "failed"


class Deed(StrEnum):
    """The operation on one resource. A replacement is one deed, whatever the number of its steps. FORGET: the resource
    is removed from the state and stays in the cloud."""

    REPLACE = "replace"
    DELETE = "delete"
    FORGET = "forget"
    UPDATE = "update"
    CREATE = "create"
    IMPORT = "import"
    READ = "read"


class PropertyChange(Stored):
    """One property that changes. `path`: as the engine writes it, for example `tags.Team`; `before` and `after`: JSON
    for people, None where there is no value, `[secret]` for a secret; `replaces`: whether it is a reason to replace."""

    path: str
    before: str | None = None
    after: str | None = None
    replaces: bool = False


class ResourceStep(Stored):
    """One resource that changes.

    Attributes:
        protected: Pulumi refuses to delete it.
        stateful: it holds data that no update restores.
        retained: deleted from the state, it stays in the cloud.
    """

    urn: str
    type: str
    name: str
    deed: Deed
    changes: tuple[PropertyChange, ...] = ()
    protected: bool = False
    stateful: bool = False
    retained: bool = False

    @property
    def replaces_because(self) -> tuple[str, ...]:
        """Paths of the properties for which it is replaced."""
        return tuple(change.path for change in self.changes if change.replaces)

    @property
    def grave(self) -> bool:
        """Whether a protected or stateful resource goes, be it for another one."""
        return self.deed in (Deed.REPLACE, Deed.DELETE, Deed.FORGET) and (self.protected or self.stateful)


class Exemption(Stored):
    """The exception of a resource from a rule. `until`: the last day of the exception."""

    reason: str
    until: date


class BrokenRule(Stored):
    """A rule that a resource breaks, or the whole stack where `resource` is empty. `level` mandatory: it may not be
    merged, unless `excepted`."""

    rule: str
    level: Literal["mandatory", "advisory"]
    message: str
    severity: str = ""
    resource: str = ""
    excepted: Exemption | None = None

    @property
    def stops(self) -> bool:
        """Whether it keeps the change from being merged."""
        return self.level == "mandatory" and self.excepted is None


class Diagnostic(Stored):
    """A message of the engine or the program. `resource`: name of the resource that it is about, or empty."""

    severity: Literal["error", "warning"]
    text: str
    resource: str = ""


class JobEffect(Stored):
    """The effect of a change on jobs and their data, in a sentence. `harm`: it ends jobs or loses data."""

    resource: str
    text: str
    harm: bool = False


class EnvironmentReport(Document):
    """The effects of a change on one environment.

    Attributes:
        base: the older revision of the change.
        head: the newer revision of the change.
        stays: number of unchanged resources.
        first: nothing of the environment existed before.
        whole: the engine's log has its end, without which steps may be missing.
        estimate: None without an estimate.
        digest: SHA-256 over all steps, empty if they are unknown: equal digests mean equal steps.
    """

    version: int = 1
    environment: str
    stack: str
    outcome: PreviewOutcome
    base: str = ""
    head: str = ""
    steps: tuple[ResourceStep, ...] = ()
    stays: int = 0
    first: bool = False
    whole: bool = True
    rules: tuple[BrokenRule, ...] = ()
    passed: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    effects: tuple[JobEffect, ...] = ()
    estimate: Estimate | None = None
    digest: str = ""

    @property
    def blocked(self) -> bool:
        """Whether it may not be merged: the preview failed or a mandatory rule is broken."""
        return self.outcome is PreviewOutcome.FAILED or any(rule.stops for rule in self.rules)

    @property
    def errors(self) -> tuple[str, ...]:
        """The errors that the engine, the program or the review reported."""
        return tuple(diagnostic.text for diagnostic in self.diagnostics if diagnostic.severity == "error")


def in_a_line(report: EnvironmentReport) -> str:
    """Return a report as one line of a terminal."""
    count = f"{counted(len(report.steps), 'resource')} to change" if report.steps else "nothing changes"
    stops = sum(rule.stops for rule in report.rules)
    rules = f", {counted(stops, 'mandatory rule')} broken" if stops else ""
    digest = f", digest {report.digest}" if report.digest else ""
    return f"{report.environment}: {report.outcome.value}, {count}{rules}{digest}"
