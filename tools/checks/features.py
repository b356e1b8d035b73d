"""Checks that selections of the library's features compile, and their dependencies: python3 -m tools.checks.features [--all]

- The library compiles without warnings with each feature, in about a dozen selections that separate unrelated features. With --all,
  every feature is checked alone, and `testing` with each source that has a feature, because its builders depend on the sources.
  `jmespath` has no effect alone.
- Without `dynamodb` and `sqs-client`, no crate of the AWS SDK is built, because users of other stores do not need it.
- With `http` and `axum`, no Lambda or AWS crate is built. The examples of an axum service and of a Redis stream consumer contain
  none either.
- hyper 0.14 is never built. The SDK's legacy HTTP client would add it, with a second TLS stack.
- ring and AWS-LC are built only if `ring` or `aws-lc` is selected together with a store that uses TLS. A second provider would
  add 2 MB without benefit, and a FIPS client needs neither. Without a selection, DynamoDB adds no TLS at all.
- No other package of the workspace contains AWS-LC, because the functions and the examples use ring.
"""

import json
import re
import subprocess
import sys

from tools.lib.common import ROOT, say

LIBRARY = "lambda-once"
# The runtime, its events and its HTTP types, and the SDK.
LAMBDA = r"lambda_|aws_lambda|aws-"
# The cryptography crates of TLS that each feature selects, and all TLS and cryptography crates.
CRYPTOGRAPHY = {"ring": {"ring"}, "aws-lc": {"aws-lc-rs", "aws-lc-sys"}}
TLS = r"(ring|rustls|aws-lc-[a-z-]+|openssl|native-tls|s2n-tls) "
# The features whose stores use TLS. Those with rustls add it without a cryptography provider, too.
RUSTLS = {"postgres-tls", "redis-tls"}
USES_TLS = {"dynamodb", *RUSTLS}


# Each feature is in one selection, without most others that could hide a missing dependency. AWS-LC is checked only with --all,
# because it takes longer to compile than all of these.
FEW = [
    "", "batch", "sqs,testing", "dynamodb-streams,cache", "http,anyhow", "axum,order",
    "invocation,jmespath", "conformance", "postgres", "postgres-tls,ring", "redis", "redis-cluster,redis-tls", "dynamodb",
    "powertools,http-lambda", "sqs-client",
]
# Aliases of `batch`.
ALIASES = {"kinesis", "kafka", "mq", "sns", "eventbridge"}
LEFT_OUT = {"aws-lc", "default", *ALIASES}


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def features():
    """Returns the library's features, each with the features that it enables."""
    packages = json.loads(cargo("metadata", "--no-deps", "--format-version", "1"))["packages"]
    return next(package["features"] for package in packages if package["name"] == LIBRARY)


def implied(feature, all_features):
    found, todo = set(), [feature]
    while todo:
        name = todo.pop()
        if name in all_features and name not in found:
            found.add(name)
            todo += all_features[name]
    return found


def forbidden(pattern, *selection):
    """Returns the crates of a selection whose `name version` matches."""
    tree = cargo("tree", *selection, "--target", "all", "--edges", "normal,build", "--prefix", "none")
    return sorted({line.split(" (")[0] for line in tree.splitlines() if re.match(pattern, line)})


def wrong_tls(alone, all_features):
    """Yields a problem for each selection whose TLS crates do not match its features."""
    without = [name for name in alone if name not in CRYPTOGRAPHY and not USES_TLS & implied(name, all_features)]
    groups = [[name] for name in alone if USES_TLS & implied(name, all_features)] + [without]
    for group in groups:
        on = set().union(*(implied(name, all_features) for name in group))
        for choice in (None, *CRYPTOGRAPHY):
            selection = ",".join([*group, choice] if choice else group)
            crates = forbidden(TLS, "--package", LIBRARY, "--no-default-features", "--features", selection)
            found = {crate.split()[0] for crate in crates}
            expected = CRYPTOGRAPHY[choice] if choice and USES_TLS & on else set()
            if expected or RUSTLS & on:
                expected = expected | {"rustls"}
            if found != expected:
                yield f"with the features {selection}: TLS is {sorted(found)}, and should be {sorted(expected)}"


def every(alone, all_features):
    """Returns the selections of --all."""
    sources = [name for name in alone if "batch" in all_features[name] and name != "testing"]
    together = [f"testing,{source}" for source in sources] + ["jmespath,batch", "jmespath,invocation"]
    # All other builds use ring.
    together += [f"{store},aws-lc" for store in sorted(USES_TLS)]
    return ["", *alone, *together]


def main():
    if sys.argv[1:] not in ([], ["--all"]):
        sys.exit(__doc__)
    all_features = features()
    alone = sorted(set(all_features) - {"default", *ALIASES})
    if wrong := [name for name in sorted(ALIASES) if all_features[name] != ["batch"]]:
        sys.exit(f"not aliases of `batch`: {', '.join(wrong)}")
    if forgotten := set(all_features) - LEFT_OUT - set(",".join(FEW).split(",")):
        sys.exit(f"in no selection of tools/checks/features.py: {', '.join(sorted(forgotten))}")
    for choice in every(alone, all_features) if sys.argv[1:] else FEW:
        say(f"the library with {choice or 'no feature'}")
        selection = ["--package", LIBRARY, "--no-default-features", "--features", choice]
        # Clippy instead of check, because its -D warnings affects only this workspace and does not rebuild the dependencies.
        cargo("clippy", "--quiet", *selection, "--", "-D", "warnings")

    without_aws = [name for name in alone if not {"dynamodb", "sqs-client"} & implied(name, all_features)]
    found = {
        "without the features dynamodb and sqs-client": forbidden(
            r"aws-(?!lc-)", "--package", LIBRARY, "--no-default-features", "--features", ",".join(without_aws)
        ),
        "with the features http and axum": forbidden(
            LAMBDA, "--package", LIBRARY, "--no-default-features", "--features", "http,axum"
        ),
        "in the example of an axum service": forbidden(LAMBDA, "--package", "examples"),
        "in the example of a consumer": forbidden(LAMBDA, "--package", "consumer"),
        "in the workspace": forbidden(r"hyper v0\.", "--workspace", "--all-features"),
        "in the functions and the examples": forbidden(r"aws-lc", "--workspace", "--exclude", LIBRARY, "--all-features"),
    }
    wrong = list(wrong_tls(alone, all_features))
    for what in wrong:
        print(what, file=sys.stderr)
    for where, crates in found.items():
        for crate in crates:
            print(f"{where}: {crate} must not be built", file=sys.stderr)
    sys.exit(1 if wrong or any(found.values()) else 0)


if __name__ == "__main__":
    main()
