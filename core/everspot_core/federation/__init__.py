"""Several clusters that take over jobs from each other: which of them should finish a job, and when it should move.

`prospect` says what finishing a job in a cluster would cost and when it would be done, by the same functions of the
market as the plan. `decision` compares such prospects. Both are pure. Nothing is imported here, since records of jobs
and the plan's input name `visits`, and `prospect` needs the plan.
"""
