"""How long things take by themselves, in market time."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Delays:
    """How long a cloud takes for what it does by itself. Market time."""

    submit: timedelta = timedelta(seconds=2)  # a fleet request until its first launches
    pending: timedelta = timedelta(seconds=8)  # launch until `running`
    boot: timedelta = timedelta(seconds=20)  # launch until the image's boot command starts
    shutdown: timedelta = timedelta(seconds=30)  # SIGTERM until SIGKILL, when a user terminates an instance
    replace: timedelta = timedelta(seconds=15)  # the end of a fleet's instance until its replacement is asked for
    retry: timedelta = timedelta(seconds=30)  # a fleet that lacks capacity, until it asks again
    heal: timedelta = timedelta(seconds=30)  # the end of a group's instance until its replacement
    notice: timedelta = timedelta(seconds=120)  # interruption notice until the instance is taken
    walk: timedelta = timedelta(seconds=600)  # from one price to the next
    visible: timedelta = timedelta(seconds=3)  # launch until every description tells of the instance
    remembered: timedelta = timedelta(hours=1)  # the end of an instance until no description tells of it
