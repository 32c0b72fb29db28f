"""The demonstration: a user's view of Everspot, through its public interfaces alone (engine, CLI, market controls)."""
