"""The process that runs on every instance of the image: it takes jobs, renews their leases, and watches for the cloud's
notices.

It never imports torch, because the agent must be up within a second of boot. Training runs in child processes.
"""
