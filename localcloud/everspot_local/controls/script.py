"""A market's script: actions at given moments, or a trace of pools' depths.

A script is YAML or JSON: a list of actions with `at`, the market time since the start, or an object with
`actions` and, optionally, `types`, instance types with prices that the catalogue lacks. A trace is JSON with
`metadata.gap_seconds`, `data` (how many instances the pool gives, one figure a gap) and optionally `prices`;
or an object of such traces by pool name.
"""

import json
import math
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.validation.model_errors import translate_errors
from everspot_core.validation.yaml_text import BadYaml, load
from pydantic import ValidationError

from everspot_local.controls.actions import Actions
from everspot_local.market.delays import span
from everspot_local.market.market import LocalMarket

REPEATED = "every"


class BadScript(ValueError):
    """A script or trace that cannot be played."""


@dataclass(frozen=True)
class ScriptStep:
    """An action at a market time since the start; `interval` repeats it."""

    at: timedelta
    action: dict[str, Any]
    interval: timedelta | None = None


@dataclass(frozen=True)
class Script:
    """All steps, and the instance types that a script declares."""

    steps: list[ScriptStep] = field(default_factory=list)
    types: list[InstanceType] = field(default_factory=list)

    @classmethod
    def load(cls, script: str | Path | None, trace: str | Path | None, region: str) -> Self:
        """Read scripts and traces from files; None adds nothing.

        Raises:
            BadScript: naming the file and everything that is wrong in it.
        """
        steps, types = _script(Path(script)) if script is not None else ([], [])
        if trace is not None:
            steps += _trace(Path(trace), region)
        return cls(steps, types)

    def play(self, market: LocalMarket, actions: Actions) -> None:
        """Schedule every step on the market's timeline, counted from now."""
        if self.types:
            market.use_catalogue(market.pools.catalogue.with_types(self.types))
        start = market.clock.now()
        for step in self.steps:
            market.timeline.at(start + step.at, _Play(market, actions, step))


class _Play:
    """One step when it is due; the timeline logs an action that is impossible then (no such instance)."""

    def __init__(self, market: LocalMarket, actions: Actions, step: ScriptStep) -> None:
        self._market = market
        self._actions = actions
        self._step = step

    def __call__(self) -> None:
        if self._step.interval is not None:
            self._market.timeline.after(self._step.interval, self)
        self._actions.do(self._step.action)


def _read(path: Path) -> Any:
    try:
        return load(path.read_text(encoding="utf-8"))
    except BadYaml as error:
        raise BadScript(f"{path} {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadScript(f"{path}: {error}") from None


def _script(path: Path) -> tuple[list[ScriptStep], list[InstanceType]]:
    document = _read(path)
    whole: dict[str, Any] = document if isinstance(document, dict) else {"actions": document}
    problems = [f"unknown key {name}" for name in whole if name not in ("actions", "types")]
    problems += [f"{name} must be a list" for name, value in whole.items() if not isinstance(value, list)]
    steps, types = list[ScriptStep](), list[InstanceType]()
    if not problems:
        for number, kind in enumerate(whole.get("types", []), 1):
            try:
                types.append(InstanceType.model_validate(kind))
            except ValidationError as error:
                problems += [f"type {number}: {fault}" for fault in translate_errors(error, InstanceType)]
        for number, entry in enumerate(whole.get("actions", []), 1):
            try:
                steps.append(_step(entry))
            except ValueError as error:
                problems.append(f"step {number}: {error}")
    if problems:
        raise BadScript(f"{path}: {'; '.join(problems)}")
    return steps, types


def _step(entry: Any) -> ScriptStep:
    if not isinstance(entry, dict) or entry.get("action") not in Actions.NAMES or "at" not in entry:
        raise ValueError(f"needs `at` and `action`, one of {', '.join(Actions.NAMES)}")
    fields = dict(entry)
    at, repeat_interval = span(fields.pop("at")), fields.pop(REPEATED, None)
    again = None if repeat_interval is None else span(repeat_interval)
    if again == timedelta():
        raise ValueError(f"`{REPEATED}` must be more than 0s")
    return ScriptStep(at=at, action=fields, interval=again)


def _trace(path: Path, region: str) -> list[ScriptStep]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadScript(f"{path}: {error}") from None
    if not isinstance(document, dict):
        raise BadScript(f"{path}: must be a trace, or an object of traces by pool")
    steps, wrong = list[ScriptStep](), list[str]()
    for pool, trace in ({"*": document} if "data" in document else document).items():
        try:
            steps += _schedule(pool, trace)
        except (TypeError, LookupError, AttributeError, ValueError) as error:
            problem = error if type(error) is ValueError else "needs `metadata.gap_seconds` and a list `data`"
            wrong.append(f"{pool}: {problem}")
    if wrong:
        raise BadScript(f"{path}: {'; '.join(wrong)}")
    if not steps:
        raise BadScript(f"{path}: an empty trace of {region}")
    return steps


def _schedule(pool: str, trace: Any) -> list[ScriptStep]:
    gap = span(float(trace["metadata"]["gap_seconds"]))
    depths, prices = [int(n) for n in trace["data"]], [float(usd) for usd in trace.get("prices", [])]
    if not gap or min(depths, default=0) < 0 or not all(0 < usd < math.inf for usd in prices):
        raise ValueError("gap and prices must be above 0, and data not below")
    steps = _changes(gap, [{"action": "depth", "pool": pool, "instances": n} for n in depths])
    return steps + _changes(gap, [{"action": "price", "pool": pool, "usd": usd} for usd in prices])


def _changes(gap: timedelta, actions: list[dict[str, Any]]) -> list[ScriptStep]:
    """Return only the steps whose figure differs from the one before."""
    return [
        ScriptStep(at=gap * number, action=action)
        for number, action in enumerate(actions)
        if number == 0 or action != actions[number - 1]
    ]
