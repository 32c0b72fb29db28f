"""Elastic capacity: what the scheduler launches for jobs and lets go again.

`groups` makes requests of a plan's launches, `intents` writes them down before and after, `launcher` asks the cloud,
`refusals` remembers what it said, `releaser` ends what nobody needs, and `desk` is what the loop sees of it.
"""
