#!/usr/bin/env python3
"""Builds the function of benches/functions that needs no AWS SDK, with each choice of features, and checks its size.

The build is that of a deployment: the profile `release`, stripped. Each takes some minutes.
"""

import os
import sys

from common import ROOT, must, say

BINARY = "redis-orders"
# The largest size of each choice of features, in MB (10^6 bytes).
LIMITS = {"redis": 3.5, "redis-tls": 4.8}


def size(features):
    """The size of the binary in MB."""
    say(f"building {BINARY} with {features}")
    selection = ["--package", "bench-functions", "--bin", BINARY, "--no-default-features", "--features", features]
    must(["cargo", "build", "--quiet", "--release", *selection], cwd=ROOT)
    return (ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / BINARY).stat().st_size / 1e6


def main():
    sizes = {features: size(features) for features in LIMITS}
    for features, limit in LIMITS.items():
        print(f"{features}: {sizes[features]:.2f} MB of {limit} MB")
    sys.exit(1 if any(sizes[features] > limit for features, limit in LIMITS.items()) else 0)


if __name__ == "__main__":
    main()
