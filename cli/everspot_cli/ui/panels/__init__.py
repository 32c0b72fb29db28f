"""The contents of each part of the web UI: pure functions from readings to what the templates print."""
