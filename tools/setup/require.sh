#!/bin/sh
# Prints the missing prerequisites, one per line, with the packages that provide them: tools/setup/require.sh
# POSIX sh, because everything else may be missing. PYTHON selects another interpreter.
missing=0

lacks() {
    printf '%s is missing. Debian: %s; Fedora: %s; macOS: %s\n' "$1" "$2" "$3" "$4" >&2
    missing=1
}

has() { command -v "$1" >/dev/null 2>&1; }

python=${PYTHON:-python3}
has cargo || lacks 'Rust' 'apt-get install rustup && rustup default stable (Debian 12: rustup.rs)' 'dnf install rustup && rustup-init' \
    'brew install rustup && rustup default stable'
has cc || lacks 'A C compiler' 'apt-get install gcc libc6-dev' 'dnf install gcc' 'xcode-select --install'
if ! has "$python" || ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    lacks 'Python 3.10 or newer' 'apt-get install python3 python3-venv' 'dnf install python3' 'brew install python'
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    lacks "Python's module venv" 'apt-get install python3-venv' 'dnf install python3' 'brew install python'
fi
exit "$missing"
