"""The parts of `everspot rehearse`: the job, the process that rehearses it, the table, and the history of
rehearsals."""
