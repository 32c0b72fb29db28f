"""Other makers' training loops on capacity that comes and goes: `transformers`, `lightning` and `accelerate`.

Each module makes a user's loop checkpoint and end at a notice, resume where it was, and report its steps. The
checkpoints are the framework's own, in the folder `checkpoints`, which the agent keeps. Without an agent nothing
changes.
"""
