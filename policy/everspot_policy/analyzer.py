"""The server of the engine's analyzer protocol, which serves the rules to the engine.

Levels are those of the stack's environment, which the engine names first. Every problem carries its own level, because
an exception makes one of them advisory. pulumi-policy serves one level for a rule, and does not say which stack it is.
"""

from collections.abc import Callable, Iterable
from datetime import date
from typing import Any

from everspot_core.validation.problems import Problem
from google.protobuf import empty_pb2
from pulumi.runtime.proto import analyzer_pb2 as pb
from pulumi.runtime.proto import analyzer_pb2_grpc, plugin_pb2

from everspot_policy.judgement import Judgement, weigh
from everspot_policy.request import redacted, subject
from everspot_policy.rule import Level, Rule, Severity, Subject, problems
from everspot_policy.rules import RULES
from everspot_policy.settings import PolicySettings, RuleException
from everspot_policy.stack import COST, STACK_RULES, StackRule
from everspot_policy.unused_exceptions import unused_exceptions

NAME = "everspot"
HIGH = "highUsdPerMonth"
LEVELS = {Level.MANDATORY: pb.MANDATORY, Level.ADVISORY: pb.ADVISORY, Level.OFF: pb.DISABLED}
NAMES = {number: level for level, number in LEVELS.items()} | {pb.REMEDIATE: Level.MANDATORY}
SEVERITIES = {
    Severity.LOW: pb.POLICY_SEVERITY_LOW,
    Severity.MEDIUM: pb.POLICY_SEVERITY_MEDIUM,
    Severity.HIGH: pb.POLICY_SEVERITY_HIGH,
    Severity.CRITICAL: pb.POLICY_SEVERITY_CRITICAL,
}


class Analyzer(analyzer_pb2_grpc.AnalyzerServicer):
    """Answers the engine. `today`: asked at each resource, for the exceptions; `version`: the pack's."""

    def __init__(self, settings: PolicySettings, version: str, today: Callable[[], date]) -> None:
        self._settings = settings
        self._version = version
        self._today = today
        self._stack = ""
        self._levels: dict[str, Level] = {}
        self._high: float | None = None
        self._ended: set[RuleException] = set()

    def ConfigureStack(
        self, request: pb.AnalyzerStackConfigureRequest, context: Any
    ) -> pb.AnalyzerStackConfigureResponse:
        """Note which stack it is, before any other call."""
        self._stack = request.stack
        return pb.AnalyzerStackConfigureResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> plugin_pb2.PluginInfo:
        """Return the pack's version."""
        return plugin_pb2.PluginInfo(version=self._version)

    def GetAnalyzerInfo(self, request: Any, context: Any) -> pb.AnalyzerInfo:
        """Return all rules, each at the level that it has in this stack's environment."""
        listed = [self._info(each, pb.POLICY_TYPE_RESOURCE) for each in RULES.values()]
        listed += [self._info(each, pb.POLICY_TYPE_STACK) for each in STACK_RULES.values()]
        return pb.AnalyzerInfo(name=NAME, version=self._version, supportsConfig=True, policies=listed)

    def _info(self, rule: Rule | StackRule, kind: "pb.PolicyType.ValueType") -> pb.PolicyInfo:
        info = pb.PolicyInfo(
            name=rule.id,
            displayName=rule.title,
            description=rule.title,
            remediation_steps=rule.remedy,
            enforcementLevel=LEVELS[self._settings.level(rule.id, self._stack)],
            severity=SEVERITIES[rule.severity],
            policy_type=kind,
        )
        if rule.id == COST:
            schema = {"type": "number", "description": "High end of the month's estimate in USD."}
            info.configSchema.properties.update({HIGH: schema})
        return info

    def Configure(self, request: pb.ConfigureAnalyzerRequest, context: Any) -> empty_pb2.Empty:
        """Note the settings of --policy-pack-config: levels over the settings' ones, and the estimate."""
        rules = request.policyConfig
        self._levels = {name: NAMES[rules[name].enforcementLevel] for name in rules}
        cost = rules[COST].properties if COST in rules else {}
        self._high = float(cost[HIGH]) if HIGH in cost and isinstance(cost[HIGH], float) else None
        return empty_pb2.Empty()

    def Analyze(self, request: pb.AnalyzeRequest, context: Any) -> pb.AnalyzeResponse:
        """Judge one resource."""
        secrets: set[str] = set()
        judged = subject(request, self._stack, secrets)
        answer = pb.AnalyzeResponse()
        for rule in RULES.values():
            level = self._level(rule.id)
            if level is Level.OFF:
                continue
            if not rule.concerns(judged.type):
                answer.not_applicable.append(pb.PolicyNotApplicable(policy_name=rule.id, reason="another type"))
                continue
            if violations := problems(rule, judged):
                answer.diagnostics.append(
                    self._diagnostic(self._weigh(rule, violations, judged, level), judged.urn, secrets)
                )
        return answer

    def AnalyzeStack(self, request: pb.AnalyzeStackRequest, context: Any) -> pb.AnalyzeResponse:
        """Judge all resources together."""
        secrets: set[str] = set()
        judged = [subject(each, self._stack, secrets) for each in request.resources]
        subjects = {each.urn: each for each in judged}
        bounds = self._settings.bounds(self._stack, self._high)
        answer = pb.AnalyzeResponse()
        for rule in STACK_RULES.values():
            level = self._level(rule.id)
            if level is Level.OFF:
                continue
            by_urn: dict[str, list[Problem]] = {}
            for urn, problem in rule.check(judged, bounds):
                by_urn.setdefault(urn, []).append(problem)
            for urn, listed in by_urn.items():
                about = subjects.get(urn, Subject("", {}, name=self._stack, environment=self._stack))
                answer.diagnostics.append(self._diagnostic(self._weigh(rule, listed, about, level), urn, secrets))
        for exception, message in unused_exceptions(self._settings, judged, self._stack, self._today(), self._ended):
            if self._level(exception.rule) is not Level.OFF:
                excepted = RULES.get(exception.rule) or STACK_RULES[exception.rule]
                answer.diagnostics.append(self._advise(excepted, redacted(message, secrets), Level.ADVISORY, ""))
        return answer

    def _level(self, rule: str) -> Level:
        return self._levels.get(rule) or self._settings.level(rule, self._stack)

    def _weigh(self, rule: Rule | StackRule, violations: list[Problem], about: Subject, level: Level) -> Judgement:
        judgement = weigh(rule, violations, about, level, self._settings, self._today())
        if judgement.expired is not None:
            self._ended.add(judgement.expired)
        return judgement

    def _diagnostic(self, judgement: Judgement, urn: str, secrets: Iterable[str]) -> pb.AnalyzeDiagnostic:
        return self._advise(judgement.rule, redacted(str(judgement), secrets), judgement.level, urn)

    def _advise(self, rule: Rule | StackRule, text: str, level: Level, urn: str) -> pb.AnalyzeDiagnostic:
        return pb.AnalyzeDiagnostic(
            policyName=rule.id,
            policyPackName=NAME,
            policyPackVersion=self._version,
            description=rule.title,
            message=f"{rule.title}\n{text}",
            enforcementLevel=LEVELS[level],
            severity=SEVERITIES[rule.severity],
            urn=urn,
        )
