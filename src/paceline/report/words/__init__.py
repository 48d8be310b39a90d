"""The words of Paceline: every sentence, unit and rounding that people read of records and findings. It concludes nothing.

Not here, because it is kept in `result.json`, which is written where this room may not be imported: why a run failed or was refused, why
something could not be measured, and the rule of the steady state. They are composed where they arise.
"""
