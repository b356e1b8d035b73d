#!/bin/sh
# Runs rustdoc with unstable options. The variable is not set for Cargo, because some build scripts depend on it and their crates would
# be compiled again.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
