"""Steps and metrics of programs that do not use the trainer library."""
