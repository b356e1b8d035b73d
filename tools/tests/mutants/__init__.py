"""Systematic mutants of the statements that decide: the Lua scripts, the SQL and DynamoDB's expressions.

`tools/tests/plants.py` has mutations that people wrote, at least one for each rule. These are derived from the texts: each
comparison, conjunction, number, written field and statement is changed in turn.
"""
