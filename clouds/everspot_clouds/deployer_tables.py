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

    Args:
        preview: the permissions of a preview.
        deploy: those of `up`, `refresh` and `destroy`.
        account: those of the account stack.
        unseen: permissions that no call shows, each with what needs it and, after the last colon, the source, which the
            table leaves out.
        after: the character that ends a permission's service.
        cell: returns the text for the permissions of one service.
    """
    lines = [
        "| service | preview | up, refresh and destroy, besides | the account stack, besides |",
        "| --- " * 4 + "|",
    ]
    for service in sorted({permission.partition(after)[0] for permission in preview | deploy | account}):
        cells = [cell(service, permissions) for permissions in (preview, deploy - preview, account - preview)]
        lines.append(" | ".join((f"| `{service}`", *cells)) + " |")
    lines += ["", "| also | for what |", "| --- | --- |"]
    lines += [
        f"| {', '.join(f'`{permission}`' for permission in permissions.split(', '))} | {_purpose(reason)} |"
        for permissions, reason in unseen.items()
    ]
    return "\n".join(lines) + "\n"


def _purpose(reason: str) -> str:
    return reason.rpartition(": ")[0] or reason
