#!/bin/sh
# rustdoc that takes unstable options. The variable is set here and not for Cargo, which would compile the dependencies again: the
# build scripts of some depend on it.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
