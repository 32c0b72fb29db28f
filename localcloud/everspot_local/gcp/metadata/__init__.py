"""The instances' metadata servers."""
