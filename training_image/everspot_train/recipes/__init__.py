"""The built-in training programs, which a job selects by `recipe` instead of `code`."""
