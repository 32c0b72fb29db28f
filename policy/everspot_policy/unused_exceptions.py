"""Exceptions in the settings that excuse no violation, which their author does not expect."""

from collections.abc import Collection, Iterator, Sequence
from datetime import date

from everspot_core.validation.problems import cut, near

from everspot_policy.rule import Subject
from everspot_policy.rules import RULES
from everspot_policy.settings import PolicySettings, RuleException
from everspot_policy.stack import STACK_RULES

_NAME_AT_MOST = 200  # characters of a resource that the settings name


def unused_exceptions(
    settings: PolicySettings,
    subjects: Sequence[Subject],
    stack: str,
    today: date,
    reported: Collection[RuleException] = (),
) -> Iterator[tuple[RuleException, str]]:
    """Yield the exceptions for this stack that have ended or apply to none of its resources, each with a sentence.

    Args:
        settings: The exceptions.
        subjects: All resources of the stack.
        stack: Its name.
        today: An exception whose last day is before this has ended.
        reported: Expired exceptions that a resource which breaks the rule has already reported.
    """
    for each in settings.exceptions:
        if not each.is_for(stack):
            continue
        name = cut(each.resource, _NAME_AT_MOST)
        if each.until < today:
            if each not in reported:
                ended = f"the exception for {name} ended on {each.until.isoformat()}"
                yield each, f"covers nothing: {ended}. Take it out of the settings, or set a later day."
        elif reason := _why_unused(each, subjects, stack):
            yield each, f"covers nothing: the exception for {name}, until {each.until.isoformat()}: {reason}"


def _why_unused(exception: RuleException, subjects: Sequence[Subject], stack: str) -> str:
    """Return why an exception applies to nothing, in a sentence; empty if it applies to something."""
    if exception.rule in STACK_RULES:
        if STACK_RULES[exception.rule].about_stack:
            remark = f"the rule is about the stack as a whole, and `resource` has to be the stack's name, {stack}."
            return "" if exception.resource == stack else remark
        judged = list(subjects)
    else:
        judged = [each for each in subjects if RULES[exception.rule].concerns(each.type)]
    if any(exception.resource in (each.name, each.urn) for each in judged):
        return ""
    if any(exception.resource in (each.name, each.urn) for each in subjects):
        return "the rule is not about resources of this type."
    suggestion = near(exception.resource, [each.name for each in judged])
    return f"no resource of this stack has that name{suggestion}. `environments` says where an exception is for."
