"""The course of a market: a script of actions at given moments, or a trace of how deep pools were.

A script is YAML or JSON: a list of actions with `at`, the market time since the start, or an object with
`actions` and, optionally, `types`, instance types with prices that the catalogue lacks. A trace is JSON with
`metadata.gap_seconds`, `data` (how many instances the pool gives, one figure a gap) and optionally `prices`;
or an object of such traces by pool name.
"""

import json
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import yaml
from everspot_core.catalogue import InstanceType

from everspot_local.controls.actions import Actions
from everspot_local.market.delays import span
from everspot_local.market.market import LocalMarket

REPEATED = "every"


class BadScript(ValueError):
    """A script or trace that cannot be played."""


@dataclass(frozen=True)
class ScriptStep:
    """An action at a market time since the start; `every` repeats it."""

    at: timedelta
    action: dict[str, Any]
    every: timedelta | None = None


@dataclass(frozen=True)
class Script:
    """All steps, and the instance types that a script declares."""

    steps: list[ScriptStep] = field(default_factory=list)
    types: list[InstanceType] = field(default_factory=list)

    @classmethod
    def load(cls, script: str | Path | None, trace: str | Path | None, region: str) -> Self:
        """Read scripts and traces from files; None adds nothing.

        Raises:
            BadScript: naming the file and what is wrong in it.
        """
        steps: list[ScriptStep] = []
        types: list[InstanceType] = []
        if script is not None:
            document = _read(Path(script))
            if isinstance(document, dict):
                if unknown := sorted(set(document) - {"actions", "types"}):
                    raise BadScript(f"{script}: unknown keys {', '.join(unknown)}")
                types = [InstanceType.model_validate(t) for t in document.get("types", [])]
                document = document.get("actions", [])
            steps += [_step(script, number, entry) for number, entry in enumerate(document, 1)]
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
        if self._step.every is not None:
            self._market.timeline.after(self._step.every, self)
        self._actions.do(self._step.action)


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise BadScript(f"{path}: {error}") from None


def _step(source: str | Path, number: int, entry: Any) -> ScriptStep:
    if not isinstance(entry, dict) or entry.get("action") not in Actions.NAMES or "at" not in entry:
        raise BadScript(f"{source}, step {number}: needs `at` and `action`, one of {', '.join(Actions.NAMES)}")
    fields = dict(entry)
    at, every = span(fields.pop("at")), fields.pop(REPEATED, None)
    return ScriptStep(at=at, action=fields, every=None if every is None else span(every))


def _trace(path: Path, region: str) -> list[ScriptStep]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadScript(f"{path}: {error}") from None
    traces = {"*": document} if "data" in document else document
    steps: list[ScriptStep] = []
    for pool, trace in traces.items():
        gap = timedelta(seconds=float(trace["metadata"]["gap_seconds"]))
        steps += _changes(gap, [{"action": "depth", "pool": pool, "instances": int(n)} for n in trace["data"]])
        steps += _changes(gap, [{"action": "price", "pool": pool, "usd": float(p)} for p in trace.get("prices", [])])
    if not steps:
        raise BadScript(f"{path}: an empty trace of {region}")
    return steps


def _changes(gap: timedelta, actions: list[dict[str, Any]]) -> list[ScriptStep]:
    """Return only the steps whose figure differs from the one before."""
    return [
        ScriptStep(at=gap * number, action=action)
        for number, action in enumerate(actions)
        if number == 0 or action != actions[number - 1]
    ]
