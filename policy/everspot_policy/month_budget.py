"""`everspot-policy cost STACK USD`: the rule that compares a month's cost with the budget, without the engine.

The cost of a month is known once a preview has ended, and by then the engine asks no pack. So the program that has made
the estimate asks by this command, with the same settings, levels and exceptions. The answer is a JSON list of events as
the engine logs them, empty if the rule holds.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from math import isfinite
from typing import Any

from everspot_core.validation.problems import BadInputs

from everspot_policy.judgement import weigh
from everspot_policy.rule import Level, Subject
from everspot_policy.settings import PolicySettings
from everspot_policy.settings_source import settings
from everspot_policy.stack import COST, STACK_RULES

USAGE = "usage: everspot-policy cost STACK USD, the most that a month is estimated to cost"


def main(words: Sequence[str], environ: Mapping[str, str] = os.environ) -> None:
    """Answer on standard output.

    Raises:
        SystemExit: if the words or the settings are wrong.
    """
    try:
        stack, usd = words
        high = float(usd)
    except ValueError:
        sys.exit(USAGE)
    if not isfinite(high) or high < 0:
        sys.exit(USAGE)
    try:
        policy_settings = settings(environ)
    except (BadInputs, OSError, UnicodeDecodeError) as bad:
        sys.exit(f"everspot-policy: {bad}")
    sys.stdout.write(json.dumps(events(policy_settings, stack, high, datetime.now(UTC).date())) + "\n")


def events(settings: PolicySettings, stack: str, high: float, today: date) -> list[dict[str, Any]]:
    """Return the rule's findings for a stack that costs at most `high` USD a month, as events."""
    rule, level = STACK_RULES[COST], settings.level(COST, stack)
    problems = [problem for _, problem in rule.check((), settings.bounds(stack, high))]
    if level is Level.OFF or not problems:
        return []
    about = Subject("", {}, name=stack, environment=stack)
    judged = weigh(rule, problems, about, level, settings, today)
    event = {
        "policyName": COST,
        "policyPackName": "everspot",
        "enforcementLevel": judged.level.value,
        "severity": rule.severity.value,
        "message": f"{rule.title}\n{judged}",
    }
    return [{"policyEvent": event}]
