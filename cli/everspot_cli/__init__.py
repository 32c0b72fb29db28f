"""The `everspot` command and its report."""
