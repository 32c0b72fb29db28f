"""The report: what was trained, what it cost, what on-demand would have cost, and what was lost."""
