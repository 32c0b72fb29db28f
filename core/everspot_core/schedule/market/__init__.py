"""The market for capacity: how pools have behaved, their cost for a job, and the market that suits the job now."""
