"""The review of a change on a real forge: Gitea and its runner on this machine, with the shipped workflows."""
