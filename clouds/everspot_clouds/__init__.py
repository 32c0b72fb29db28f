"""Translates: what a cloud is to us, once. A folder per cloud, the same file names in each."""
