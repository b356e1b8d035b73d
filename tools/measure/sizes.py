"""Builds the function `orders`, and the one in bench/functions without the AWS SDK, and checks their sizes.

The builds use the deployment profile, `release`, for this machine. Each takes some minutes.
"""

import os
import sys

from tools.lib.common import ROOT, must, say

# The maximum size of a binary with these features, in MB (10^6 bytes).
LIMITS = {
    ("bench-functions", "redis-orders", "redis"): 3.5,
    ("bench-functions", "redis-orders", "redis-tls"): 4.8,
    # Without the feature `order`, which adds 0.25 MB.
    ("functions", "orders", ""): 9.5,
}


def name(binary, features):
    return f"{binary} with {features}" if features else binary


def size(package, binary, features):
    """Builds the binary, and returns its size in MB."""
    say(f"building {name(binary, features)}")
    selection = ["--package", package, "--bin", binary, "--no-default-features", "--features", features]
    must(["cargo", "build", "--quiet", "--release", *selection], cwd=ROOT)
    return (ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / binary).stat().st_size / 1e6


def main():
    sizes = {choice: size(*choice) for choice in LIMITS}
    for (package, binary, features), limit in LIMITS.items():
        print(f"{name(binary, features)}: {sizes[package, binary, features]:.2f} MB of {limit} MB")
    sys.exit(1 if any(sizes[choice] > limit for choice, limit in LIMITS.items()) else 0)


if __name__ == "__main__":
    main()
