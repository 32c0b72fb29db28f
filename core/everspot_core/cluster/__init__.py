"""What a cluster is told and tells: its manifest, its stack, its peers, its notifications."""
