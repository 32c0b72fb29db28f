"""Stands in for services' validation of every request against their own API model: lengths, patterns, enumerations.

The model is the one that AWS publishes with its SDKs (botocore's `service-2.json`). SDKs themselves check least lengths
only; the service refuses the rest, all faults of a request in one answer.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from botocore.model import Shape
from moto.core.utils import get_service_model

from everspot_local.aws.refusals import Refused
from everspot_local.aws.strict import strict

# EC2, S3 and SQS have rules of their own, which are not in their models.
CODES = {
    "iam": "ValidationError",
    "sts": "ValidationError",
    "autoscaling": "ValidationError",
    "events": "ValidationException",
    "ssm": "ValidationException",
    "kms": "ValidationException",
    "ce": "ValidationException",
}
_NAMES = {"L": r"\w", "N": r"\w", "Z": " \u00a0\u2000-\u200a\u202f\u3000"}


def check_request(handler: Any, service: str, action: str) -> None:
    """Refuse a request that its service's model does not allow.

    Raises:
        Refused: naming every fault.
    """
    code = CODES.get(service)
    if code is None or not strict():
        return
    shape = get_service_model(service).operation_model(action).input_shape
    if shape is None:
        return
    faults = list(_faults(shape, request_parameters(handler), ""))
    if faults:
        count = "1 validation error" if len(faults) == 1 else f"{len(faults)} validation errors"
        raise Refused(code, f"{count} detected: {'; '.join(faults)}")


def request_parameters(handler: Any) -> Mapping[str, Any]:
    """Return the parameters that moto has read by the model, or else the request's JSON."""
    if handler.automated_parameter_parsing:
        return handler.params  # type: ignore[no-any-return]
    try:
        return json.loads(handler.body or "{}")  # type: ignore[no-any-return]
    except ValueError:
        return {}


def _faults(shape: Shape, value: Any, path: str) -> Iterator[str]:
    if value is None:
        return
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            yield from _faults(member, value.get(name), _joined(path, name))
    elif shape.type_name == "list":
        yield from _sized(shape, len(value), value, path)
        for number, item in enumerate(value, 1):
            yield from _faults(shape.member, item, f"{path}.{number}.member")
    elif shape.type_name == "map":
        for key, item in value.items():
            yield from _faults(shape.key, key, path)
            yield from _faults(shape.value, item, f"{path}.{key}.member")
    elif shape.type_name == "string" and isinstance(value, str):
        yield from _text(shape, value, path)
    elif shape.type_name in ("integer", "long"):
        yield from _number(shape, int(value), path)


def _text(shape: Any, value: str, path: str) -> Iterator[str]:
    yield from _sized(shape, len(value), value, path)
    pattern = _compiled(shape.metadata.get("pattern", ""))
    if pattern is not None and not pattern.fullmatch(value):
        yield _describe_violation(value, path, f"satisfy regular expression pattern: {shape.metadata['pattern']}")
    if shape.enum and value not in shape.enum:
        yield _describe_violation(value, path, f"satisfy enum value set: [{', '.join(shape.enum)}]")


def _sized(shape: Any, length: int, value: Any, path: str) -> Iterator[str]:
    limits: Mapping[str, Any] = shape.metadata
    if length > limits.get("max", length):
        yield _describe_violation(value, path, f"have length less than or equal to {limits['max']}")
    if length < limits.get("min", length):
        yield _describe_violation(value, path, f"have length greater than or equal to {limits['min']}")


def _number(shape: Any, value: int, path: str) -> Iterator[str]:
    limits: Mapping[str, Any] = shape.metadata
    if value > limits.get("max", value):
        yield _describe_violation(value, path, f"have value less than or equal to {limits['max']}")
    if value < limits.get("min", value):
        yield _describe_violation(value, path, f"have value greater than or equal to {limits['min']}")


def _describe_violation(value: Any, path: str, requirement: str) -> str:
    shown = str(value) if len(str(value)) <= 200 else f"{str(value)[:200]}..."
    return f"Value '{shown}' at '{path}' failed to satisfy constraint: Member must {requirement}"


def _joined(path: str, name: str) -> str:
    name = name[:1].lower() + name[1:]
    return f"{path}.{name}" if path else name


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """Convert a pattern of the model from Java's syntax to Python's; None for an empty pattern or one that Python
    cannot express."""
    try:
        return re.compile(re.sub(r"\\p\{([LNZ])\}", lambda m: _NAMES[m[1]], pattern)) if pattern else None
    except re.error:
        return None
