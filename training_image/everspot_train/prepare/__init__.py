"""What is done on the instance before a job's program starts: its datasets, its packages, its set-up, its secrets."""
