"""`everspot cluster use` and `everspot cluster list`: choose the cluster that the commands talk to, in any folder."""

import os
import re
from typing import Annotated

import typer

from everspot_cli import userconfig
from everspot_cli.commands.options import Json, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.session import Session
from everspot_cli.target import CLUSTER, STORE, Target, choose
from everspot_cli.userconfig import KnownCluster

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("use")(use)
    app.command("list")(clusters)


def use(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The cluster's name. Default: show the one in use.")
    ] = None,
    store: Annotated[str | None, typer.Option("--store", metavar="URL", help="The cluster's control bucket.")] = None,
    stack: Annotated[str | None, typer.Option("--stack", metavar="STACK", help="The cluster's Pulumi stack.")] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="PROFILE", help="The cloud's profile for its credentials."),
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Forget the name; the cluster stays.")] = False,
    json: Json = False,
) -> None:
    """Choose the cluster that all commands use from now on, in any folder.

    The first time, --store or --stack says where the cluster is. The names are in
    $XDG_CONFIG_HOME/everspot/config.toml.
    """
    session = current_session(context, json)
    if name is None:
        _say_current(session)
    elif not _NAME.fullmatch(name):
        raise CliError(f"{name!r} is no name for a cluster: letters, digits, `-`, `_` and `.`", Exit.USAGE)
    elif forget:
        _forget(session, name)
    else:
        _choose(session, name, store or session.store_option, stack or session.stack, profile)


def _say_current(session: Session) -> None:
    config = userconfig.load()
    if config.current is None:
        raise CliError(
            "no cluster is in use", Exit.NOT_FOUND, hint="`everspot cluster use NAME --store URL` chooses one"
        )
    cluster = config.clusters.get(config.current)
    if session.json:
        session.answer({"name": config.current, "store": cluster.store if cluster else None})
    else:
        session.console.print(f"{config.current}  {cluster.store if cluster else '(forgotten)'}")


def _forget(session: Session, name: str) -> None:
    config = userconfig.load()
    if name not in config.clusters:
        raise CliError(f"no cluster is known as {name!r}", Exit.NOT_FOUND, hint="`everspot cluster list` lists them")
    userconfig.save(config.without(name))
    if session.json:
        session.answer({"name": name, "forgotten": True})
    else:
        session.console.print(f"{name} is forgotten. Nothing of it was touched.")


def _choose(session: Session, name: str, store: str | None, stack: str | None, profile: str | None) -> None:
    config, place = userconfig.load(), (store, stack)
    if not any(place):
        if name not in config.clusters:
            names = f"known are: {', '.join(sorted(config.clusters))}" if config.clusters else "none is known yet"
            hint = f"say where it is: everspot cluster use {name} --store URL"
            raise CliError(f"no cluster is known as {name!r}; {names}", Exit.NOT_FOUND, hint=hint)
        cluster = config.clusters[name]
        cluster = KnownCluster(name, cluster.store, profile or cluster.profile)
    else:
        target = choose(store, None, stack)
        session.choose_target(Target(target.url, target.source, profile))
        session.manifest.cluster  # noqa: B018 - that it is one, before it is noted
        cluster = KnownCluster(name, target.url, profile)
    userconfig.save(config.with_cluster(cluster))
    if session.json:
        session.answer({"name": name, "store": cluster.store, "profile": cluster.profile})
    else:
        session.console.print(f"Commands now talk to {name}: {cluster.store}", soft_wrap=True)


def clusters(context: typer.Context, json: Json = False) -> None:
    """List the user's saved clusters, and mark the one in use."""
    session, config = current_session(context, json), userconfig.load()
    rows = [
        {
            "name": cluster.name,
            "store": cluster.store,
            "profile": cluster.profile,
            "current": cluster.name == config.current,
        }
        for cluster in sorted(config.clusters.values(), key=lambda cluster: cluster.name)
    ]
    if session.json:
        session.answer(rows)
        return
    for row in rows:
        mark = "*" if row["current"] else " "
        session.console.print(f"{mark} {row['name']}  {row['store']}", soft_wrap=True)
    if not rows:
        session.console.print("None is known yet. Note one: everspot cluster use NAME --store URL")
    for variable in (STORE, CLUSTER):
        if os.environ.get(variable):
            words = f"{variable} is set and goes before the one in use: {os.environ[variable]}"
            session.errors.print(words, style="yellow", soft_wrap=True)
