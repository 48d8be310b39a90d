"""The words of Paceline: every sentence, unit and rounding that people read of records and findings. It concludes nothing.

Not here: why a run failed or was refused, and why something could not be measured. That is said where it happens, and kept in the record.
"""
