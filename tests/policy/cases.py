"""Good and bad inputs with every rule's findings in them, by path. The engine's test plants the bad ones as well."""

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """Inputs of a type, and the paths of the problems that a rule finds: none in good ones.

    `engine`: whether the engine is shown it: its provider has the type, and takes these inputs.
    """

    rule: str
    type: str
    inputs: dict[str, Any]
    paths: tuple[str, ...] = ()
    environment: str = "dev"
    protected: bool | None = None
    engine: bool = True

    @property
    def name(self) -> str:
        return f"{self.rule}-{self.type.rpartition(':')[2]}".lower()


@dataclass
class Cases:
    """Cases, put down shortly: `select` a rule and a type, `good` and `bad` ones."""

    listed: list[Case] = field(default_factory=list)
    rule: str = ""
    type: str = ""

    def select(self, rule: str, type_: str) -> "Cases":
        self.rule, self.type = rule, type_
        return self

    def good(self, *inputs: dict[str, Any], **more: Any) -> "Cases":
        self.listed += [Case(self.rule, self.type, each, **more) for each in inputs]
        return self

    def bad(self, inputs: dict[str, Any], *paths: str, **more: Any) -> "Cases":
        self.listed.append(Case(self.rule, self.type, inputs, paths, **more))
        return self


def document(*statements: dict[str, Any]) -> str:
    """A policy document of AWS."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(action: Any = "*", resource: Any = "*", **more: Any) -> dict[str, Any]:
    """A statement of one that allows."""
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}
