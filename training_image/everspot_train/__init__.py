"""The programs of an instance: the agent, and the trainer that a user's loop is built on.

Importing this package imports neither torch nor the agent.
"""
