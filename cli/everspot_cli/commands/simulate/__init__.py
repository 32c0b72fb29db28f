"""`everspot simulate`: one job, or many users' jobs, through traces of spot capacity."""

from everspot_cli.commands.simulate.command import register

__all__ = ["register"]
