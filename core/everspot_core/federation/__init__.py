"""Federation: clusters that take over jobs from each other. Decides which cluster should finish a job and when the job
should move.

`forecast` estimates what finishing a job in a cluster would cost and when it would be done, by the same functions of
the market as the plan. `decision` compares such forecasts. Both are pure. This file imports nothing, because job
records and the plan's input import `visit_records`, and `forecast` imports the plan.
"""
