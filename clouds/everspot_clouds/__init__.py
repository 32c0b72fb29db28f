"""Adapters to the clouds. There is one folder per cloud, with the same file names in each."""
