"""What `everspot rehearse` is made of: the job, the process that rehearses it, the table, and what was rehearsed."""
