"""A thin, generic provider plugin in front of a cloud's real upstream provider.

See `__main__` and `docs/internals/bridge.md`.
"""
