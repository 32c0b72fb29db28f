"""Several clusters that take over jobs from each other: which of them should finish a job, and when it should move.

`prospect` says what finishing a job in a cluster would cost and when it would be done, by the same functions of the
market as the plan. `decision` compares such prospects. Both are pure.
"""

from everspot_core.federation.decision import DEFAULT, Move, MoveTerms, MoveWhy, Prospect, Traveller, decide, say

__all__ = ["DEFAULT", "Move", "MoveTerms", "MoveWhy", "Prospect", "Traveller", "decide", "say"]
