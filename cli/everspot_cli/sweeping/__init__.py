"""What `everspot sweep` does: a study of Optuna's, kept in the store, whose trials are ordinary jobs."""
