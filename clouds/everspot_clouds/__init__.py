"""Adapters to the clouds. There is one folder per cloud, with the same file name in each for the same subject."""
