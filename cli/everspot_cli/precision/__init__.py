"""The comparisons of `everspot ab`: arms of number formats, whose runs are ordinary jobs."""
