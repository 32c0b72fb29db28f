"""The process that runs on every instance of the image: takes jobs, guards their lease, watches for the cloud's notice.

It never imports torch: the training process is a separate child process, and the agent must be up within a second of
boot.
"""
