"""The cloud's part in a new project: the questions, its settings files, and the steps until the first review."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Protocol

from everspot_core.validation.problems import Problems, near, shown

from everspot_clouds.base.errors import NotOffered
from everspot_clouds.price_files import load_catalogue

REPOSITORY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})/[A-Za-z0-9._-]{1,100}")
"""OWNER/NAME of a repository, as GitHub allows it; no wildcards."""

REPOSITORY_ID = re.compile(r"[1-9]\d{0,18}")
"""The id of a repository, or of its owner."""

MOST_USD_PER_HOUR = 2.5
"""Highest price of a type that a new project's settings name by themselves: with it, `maxInstances` of `elastic` fit
under `maxUsdPerHour` in every starter."""

TEAM = re.compile(r"[A-Za-z0-9 ._-]{1,40}")
"""A team's name, as budgets and tags take it on every cloud."""


@dataclass(frozen=True)
class ProjectAnswers:
    """The known facts of a new project.

    Attributes:
        account: of the cloud.
        repository: OWNER/NAME.
        ids: the repository's and its owner's, empty while unknown.
        unlisted_region: the region may be newer than Everspot's list.
    """

    account: str
    region: str
    team: str
    repository: str
    ids: tuple[str, str] | None = None
    unlisted_region: bool = False


@dataclass(frozen=True)
class SetupStep:
    """One step of setting up.

    Attributes:
        description: what the step does, in sentences.
        commands: as they are typed.
        stack: the stack whose settings give the monthly cost.
        costs: further known costs.
    """

    title: str
    description: str
    commands: tuple[str, ...] = ()
    stack: str = ""
    costs: str = ""


def list_offered(region: str, types: Sequence[str]) -> list[str]:
    """Return those of some instance types that are known to be offered in a region; all of them where nothing is known
    of the region: a preview names the ones that are not offered. Where none of them is offered, the region's own
    cheapest types with GPUs.

    Raises:
        NotOffered: if the region has no type with GPUs that fits under the caps of the settings.
    """
    catalogue = load_catalogue()
    offered = catalogue.offered(region)
    names = [name for name in types if not offered or name in offered]
    if names:
        return names
    prices = {
        name: price.usd_per_hour
        for name in offered
        if (kind := catalogue.types.get(name)) and kind.gpus and kind.arch == "x86_64"
        if (price := catalogue.on_demand(name, region)) and price.usd_per_hour <= MOST_USD_PER_HOUR
    }
    if not prices:
        raise NotOffered(
            f"{region} offers none of {', '.join(types)}, and no other x86_64 type with GPUs for at most "
            f"${MOST_USD_PER_HOUR:.2f} an hour; choose another region"
        )
    return sorted(prices, key=lambda name: (prices[name], name))[: len(types)]


def check_region(problems: Problems, answers: ProjectAnswers, listed: Collection[str]) -> None:
    """Add that a region is not among the known ones, with the nearest of them, unless it may be newer."""
    area = answers.region.rstrip("0123456789")
    alike = sorted(name for name in listed if name.rstrip("0123456789") == area)
    nearest = f" (there is {', '.join(alike)})" if alike else near(answers.region, listed)
    reason = f"{shown(answers.region)} is no region that Everspot knows{nearest}"
    problems.need(
        answers.unlisted_region or answers.region in listed, "region", f"{reason}; --unlisted-region takes a newer"
    )


def filled(answers: ProjectAnswers, texts: Mapping[str, str], **words: str) -> dict[str, str]:
    """Fill in the templates of settings files, by stack: with the common words of every cloud, and with a cloud's
    own."""
    ids = f', id: "{answers.ids[0]}", ownerId: "{answers.ids[1]}"' if answers.ids else ""
    common = {"region": answers.region, "team": answers.team, "repository": answers.repository, "ids": ids}
    return {stack: Template(text).substitute(common, **words) for stack, text in texts.items()}


class CloudStarter(Protocol):
    """One cloud's part in a new project."""

    @property
    def account(self) -> str:
        """The cloud's word for an account with its form, for the question."""

    @property
    def extras(self) -> str:
        """The extras with the components and clients of the cloud."""

    @property
    def price_cloud(self) -> str:
        """The cloud whose price lists count."""

    @property
    def cluster_component(self) -> str:
        """The name of a cluster's component."""

    @property
    def account_component(self) -> str:
        """The name of the component that an account has once."""

    @property
    def names_host(self) -> bool:
        """Whether the answer on the account also names the existing cluster that the new one is in."""

    @property
    def usual_region(self) -> str:
        """Return a region to propose."""

    def check(self, problems: Problems, answers: ProjectAnswers) -> None:
        """Add a problem for each mistake in account, region and team, by these names."""

    def settings(self, answers: ProjectAnswers) -> Mapping[str, str]:
        """Return the text of each stack's settings file by the stack's name, in the order in which they are applied.

        Raises:
            NotOffered: if the region is known to have no types for them.
        """

    def steps(self, answers: ProjectAnswers) -> list[SetupStep]:
        """Return the steps from an empty account to the first reviewed change."""

    def module_steps(self, answers: ProjectAnswers, module: str) -> list[str]:
        """Return what remains to be done for a cluster that a module of an existing project declares. `module`: the
        path of its file."""
