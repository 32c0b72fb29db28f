"""The tables of `docs/reference/security.md` about the permissions of deployers."""

from collections.abc import Callable, Mapping

Permissions = frozenset[str]


def table(
    preview: Permissions,
    deploy: Permissions,
    account: Permissions,
    unseen: Mapping[str, str],
    *,
    after: str,
    cell: Callable[[str, Permissions], str],
) -> str:
    """Return the two tables of a cloud, in Markdown.

    `unseen`: permissions that no call shows, each with the reason. `after`: the character that ends a permission's
    service. `cell`: says those of one service.
    """
    lines = [
        "| service | preview | up, refresh and destroy, besides | the account stack, besides |",
        "| --- " * 4 + "|",
    ]
    for service in sorted({permission.partition(after)[0] for permission in preview | deploy | account}):
        cells = [cell(service, permissions) for permissions in (preview, deploy - preview, account - preview)]
        lines.append(" | ".join((f"| `{service}`", *cells)) + " |")
    lines += ["", "| also | for what, and who says so |", "| --- | --- |"]
    lines += [
        f"| {', '.join(f'`{permission}`' for permission in permissions.split(', '))} | {reason} |"
        for permissions, reason in unseen.items()
    ]
    return "\n".join(lines) + "\n"
