"""Actions of scripts, tests and people on the market and its machines. They know no cloud."""
