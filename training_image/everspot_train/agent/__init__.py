"""The process that runs on every instance of the image: takes jobs, guards their lease, watches for the cloud's notice.

It never imports torch: the training process is a child of its own, and the agent must be up within a second of boot.
"""
