"""Plain-text credentials in declared inputs, on every cloud."""

from collections.abc import Iterator, Mapping
from typing import Any

from everspot_clouds.plain_credentials import credentials_under, list_kinds
from everspot_core.validation.problems import Problem

from everspot_policy.aws import compute as aws_compute
from everspot_policy.gcp import compute as gcp_compute
from everspot_policy.reading import hidden
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

_CHECKED_BY_OTHER_RULES: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (aws_compute.no_secrets_in_user_data, ("userData", "userDataBase64", "launchSpecifications")),
    (gcp_compute.no_secrets_in_metadata, ("metadata", "metadataStartupScript")),
)
"""Inputs that rules of their own unpack and judge, on the types that these are about."""

_DEEPEST = 40


@rule(
    "no-plain-credentials",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="No input contains a plain credential, which would be readable in git and in the state",
    remedy="Replace the credential, which counts as exposed. Keep the new one in Secrets Manager, Parameter Store or "
    "Secret Manager, or as a secret of the stack (pulumi config set --secret).",
    types=("*",),
)
def no_plain_credentials(subject: Subject) -> Iterator[Problem]:
    """Find values of any input that look like a credential by form, name or randomness, and are not marked as
    secret."""
    skipped = {name for rule, names in _CHECKED_BY_OTHER_RULES if rule.concerns(subject.type) for name in names}
    for name, value in subject.inputs.items():
        if name in skipped:
            continue
        for path, key, text in _texts(name, name, value, 0):
            matches = [] if text in subject.secrets else credentials_under(key, text)
            for kind in list_kinds(matches):
                yield Problem(path, f"seems to hold {kind}")


def _texts(path: str, key: str, value: Any, depth: int) -> Iterator[tuple[str, str, str]]:
    """Yield every known text of an input: its path, the name that describes it, and the text. A key is a text as
    well."""
    if hidden(value) or depth > _DEEPEST:
        return
    if isinstance(value, str):
        yield path, key, value
    elif isinstance(value, Mapping):
        sibling_name = _name_beside(value)
        for inner, each in value.items():
            if credentials_under("", str(inner)):
                yield f"{path}[a key]", "", str(inner)
                continue
            own = sibling_name if sibling_name and str(inner).lower() == "value" else str(inner)
            yield from _texts(f"{path}.{inner}", own, each, depth + 1)
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _texts(f"{path}[{index}]", key, each, depth + 1)


def _name_beside(value: Mapping[str, Any]) -> str:
    """Return the name of a pair of name and value, as lists of variables have them."""
    return next(
        (each for key, each in value.items() if str(key).lower() in ("name", "key") and isinstance(each, str)), ""
    )


RULES: tuple[Rule, ...] = (no_plain_credentials,)
