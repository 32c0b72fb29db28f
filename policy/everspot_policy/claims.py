"""Claims of the tokens of identity providers, and the values of claims that single somebody out."""

import re

SHARED_CLAIMS = frozenset(
    {"aud", "amr", "azp", "iss", "ref", "ref_type", "ref_protected", "environment", "environment_protected"}
)
"""Claims that the tokens of many customers of a provider have in common."""

SHARED_ISSUERS = frozenset(
    {
        "gitlab.com", "app.terraform.io", "api.pulumi.com/oidc", "agent.buildkite.com", "oidc.vercel.com",
        "accounts.google.com",
    }
)  # fmt: skip
"""Issuers that sign for all their customers. Others, such as CircleCI, have an issuer for each organization."""

_LABELS = frozenset(
    {
        "deploy", "environment", "group", "namespace", "namespace_path", "operation", "org", "organization",
        "pipeline", "project", "project_path", "pulumi", "ref", "ref_type", "repo", "repository", "run_phase",
        "scope", "serviceaccount", "stack", "system", "type", "user", "workspace",
    }
)  # fmt: skip
"""Parts of subjects that name a kind: `organization:acme:project:web`, `project_path:acme/web:ref_type:branch`."""


def names_somebody(value: str) -> bool:
    """Return whether the value of a claim, with `*` and `?` as wildcards, holds for somebody named: a whole part of it
    before the first wildcard is a name."""
    if not value or "${" in value:
        return False
    beginning = re.split(r"[*?]", value, maxsplit=1)[0]
    parts = re.split(r"[:/]", beginning)
    return beginning == value or any(part and part.lower() not in _LABELS for part in parts[:-1])
