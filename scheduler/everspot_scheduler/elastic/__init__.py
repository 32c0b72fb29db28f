"""Elastic capacity: the instances that the scheduler launches for jobs and terminates again.

`groups` makes requests of a plan's launches, `launch_cap` cuts them to the cap, `intents` stores each before the
request and again with its outcome, `launcher` asks the cloud, `refusals` remembers what pools refused, `releaser`
terminates what nobody needs, and `manager` is the loop's interface to all of it.
"""
