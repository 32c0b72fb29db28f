"""The market for capacity: how pools have behaved, what they would cost a job, and which market suits it now."""
