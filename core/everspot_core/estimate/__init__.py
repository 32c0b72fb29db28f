"""The monthly cost of the declared resources of an environment, as a range, before and after a change."""
