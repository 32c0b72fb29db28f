"""Several clusters that take over jobs from each other: which of them should finish a job, and when it should move.

`forecast` estimates what finishing a job in a cluster would cost and when it would be done, by the same functions of
the market as the plan. `decision` compares such forecasts. Both are pure. Nothing is imported here, since records of
jobs and the plan's input name `visit_records`, and `forecast` needs the plan.
"""
