"""The functions of template.yaml for the end-to-end test, built by SAM or packaged as Cargo has built them."""

import platform
import re
import shutil
import subprocess
import sys

from tools.lib import builds
from tools.lib.common import ROOT, must, say

WORK = ROOT / "target" / "e2e"
# SAM's names of this machine's architecture.
ARCHITECTURE = {"x86_64": "x86_64", "aarch64": "arm64"}

FUNCTIONS = ("orders", "payouts", "charges")
# A function of the template, as required by sam build.
BUILT_BY_SAM = re.compile(r"    Metadata:\n      BuildMethod: rust-cargolambda\n      BuildProperties:\n        Binary: (\w+)\n    Properties:\n")

# Quick to compile. `make build` uses the unchanged profile of Cargo.toml.
QUICK_RELEASE = {
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1",
}


def for_this_machine():
    return ["--parameter-overrides", f"Architecture={ARCHITECTURE[platform.machine()]}"]


def sam(arguments, env, log):
    """Runs SAM, and shows its output only if it fails."""
    with open(log, "w") as output:
        process = subprocess.run(["sam", *arguments], cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT)
    if process.returncode != 0:
        sys.exit(f"sam {arguments[0]} failed:\n{log.read_text()}")


def sam_build(env):
    say("building the functions for this machine (the first time some minutes)")
    # A separate directory, so that a manual `sam deploy` never uses a binary that was built with little optimization.
    sam(["build", "--build-dir", WORK / "build", "--no-cached", *for_this_machine()],
        # SAM looks for the binaries in target/, regardless of Cargo's setting.
        {**env, **QUICK_RELEASE, "CARGO_TARGET_DIR": str(ROOT / "target")}, WORK / "build.log")
    return WORK / "build" / "template.yaml"


def package():
    """Returns the template with the functions that Cargo has built, instead of those that SAM would build."""
    programs = builds.programs("building the functions; the first time some minutes", ["-p", "functions"], FUNCTIONS)
    for function in FUNCTIONS:
        bootstrap = WORK / "package" / function / "bootstrap"
        bootstrap.parent.mkdir(parents=True, exist_ok=True)
        # Without symbols, the upload has a tenth of the size.
        must(["strip", "-o", bootstrap, programs / function])
    text, count = BUILT_BY_SAM.subn(r"    Properties:\n      CodeUri: package/\1\n", (ROOT / "template.yaml").read_text())
    if count != len(FUNCTIONS) or "BuildMethod" in text:
        sys.exit(f"template.yaml does not have {len(FUNCTIONS)} functions in the form that tools/scenarios/functions.py expects")
    (WORK / "template.yaml").write_text(text)
    # Nested stacks.
    shutil.copytree(ROOT / "iac", WORK / "iac", dirs_exist_ok=True, ignore=shutil.ignore_patterns("terraform"))
    return WORK / "template.yaml"
