"""The numbers of cases of the random tests in a nightly run. Their defaults are quicker."""

ALL = {
    "BOLERO_RANDOM_ITERATIONS": "480",
    "CONFORMANCE_ROUNDS": "100",
    "CUT_OPERATIONS": "1000",
    "DELIVERED_MESSAGES": "10000",
    "ORDER_VERSIONS": "100",
    "PROPERTY_CASES": "10000",
    "RACE_ROUNDS": "100",
    "STORE_SEQUENCES": "2000",
}
