"""What the declared resources of an environment cost a month, as a range, before and after a change."""
