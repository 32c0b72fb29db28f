"""The demonstration: a stranger's view of Everspot, driven by its public doors alone (engine, CLI, market controls)."""
