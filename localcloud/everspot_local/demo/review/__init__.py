"""The review's way upon a real forge: Gitea and its runner on this machine, and the workflows as they are shipped."""
