"""A thin, generic provider plugin in front of the real upstream AWS provider. See `__main__` and `docs/bridge.md`."""
