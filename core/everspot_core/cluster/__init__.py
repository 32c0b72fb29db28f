"""The documents of a cluster: its manifest, its stack, its peers, its notifications."""
