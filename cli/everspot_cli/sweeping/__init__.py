"""The sweeps of `everspot sweep`: studies of Optuna in the store, whose trials are ordinary jobs."""
