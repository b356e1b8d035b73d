"""The mutants that no test detects, and why: they change nothing that the protocol promises."""

EXPLAINED = {}
