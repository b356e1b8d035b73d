"""Checks what each choice of the library's features builds and what it depends on: python3 -m tools.checks.features [--all]

- The library compiles without warnings with each feature, in a dozen selections that keep apart what belongs to each. With
  --all every feature is alone once, and so is `testing` with each source that has a feature: its builders come with their sources.
  `jmespath` does nothing alone.
- Without `dynamodb` and `sqs-client` no crate of the AWS SDK is built: users of another store do not pay for it.
- With `http` and `axum` no crate of Lambda or AWS is built, and none is in the examples: an axum service, and a
  consumer of a Redis stream.
- hyper 0.14 is built nowhere: the SDK's legacy HTTP client would bring it, with a second TLS stack.
- ring and AWS-LC are built exactly where `ring` and `aws-lc` are chosen beside a store that uses TLS: a second one would be
  2 MB for nothing, and none is wanted beside a client for FIPS. Without a choice DynamoDB brings no TLS at all.
- AWS-LC is in no other package of the workspace: the functions and the examples use ring.
"""

import json
import re
import subprocess
import sys

from tools.lib.common import ROOT, say

LIBRARY = "lambda-once"
# The runtime, its events and its HTTP types, and the SDK.
LAMBDA = r"lambda_|aws_lambda|aws-"
# The crates of the cryptography that a feature chooses for TLS, and every crate that is TLS or its cryptography.
CRYPTOGRAPHY = {"ring": {"ring"}, "aws-lc": {"aws-lc-rs", "aws-lc-sys"}}
TLS = r"(ring|rustls|aws-lc-[a-z-]+|openssl|native-tls|s2n-tls) "
# The features whose stores use TLS. Those of rustls bring it without cryptography too.
RUSTLS = {"postgres-tls", "redis-tls"}
USES_TLS = {"dynamodb", *RUSTLS}


# Each feature is in one of them, without most of those that could hide that it needs another. AWS-LC is left to --all: it takes
# longer to compile than all of these.
FEW = [
    "", "batch", "sqs,testing", "dynamodb-streams,cache", "http,anyhow", "axum,order",
    "invocation,jmespath", "conformance", "postgres", "postgres-tls,ring", "redis", "redis-cluster,redis-tls", "dynamodb",
    "powertools,http-lambda", "sqs-client",
]
# Other names of `batch`.
ALIASES = {"kinesis", "kafka", "mq", "sns", "eventbridge"}
LEFT_OUT = {"aws-lc", "default", *ALIASES}


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def features():
    """The library's features and, for each, the features it switches on."""
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
    """The crates of a selection whose `name version` matches."""
    tree = cargo("tree", *selection, "--target", "all", "--edges", "normal,build", "--prefix", "none")
    return sorted({line.split(" (")[0] for line in tree.splitlines() if re.match(pattern, line)})


def wrong_tls(alone, all_features):
    """Says of each selection whose TLS is not that which its features name."""
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
    """Every selection of --all."""
    sources = [name for name in alone if "batch" in all_features[name] and name != "testing"]
    together = [f"testing,{source}" for source in sources] + ["jmespath,batch", "jmespath,invocation"]
    # With ring they are built everywhere else.
    together += [f"{store},aws-lc" for store in sorted(USES_TLS)]
    return ["", *alone, *together]


def main():
    if sys.argv[1:] not in ([], ["--all"]):
        sys.exit(__doc__)
    all_features = features()
    alone = sorted(set(all_features) - {"default", *ALIASES})
    if wrong := [name for name in sorted(ALIASES) if all_features[name] != ["batch"]]:
        sys.exit(f"no other names of `batch`: {', '.join(wrong)}")
    if forgotten := set(all_features) - LEFT_OUT - set(",".join(FEW).split(",")):
        sys.exit(f"in no selection of tools/checks/features.py: {', '.join(sorted(forgotten))}")
    for choice in every(alone, all_features) if sys.argv[1:] else FEW:
        say(f"the library with {choice or 'no feature'}")
        selection = ["--package", LIBRARY, "--no-default-features", "--features", choice]
        # Clippy rather than check: its -D warnings concerns this workspace only and leaves dependencies as built.
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
