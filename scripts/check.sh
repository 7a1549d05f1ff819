#!/usr/bin/env bash
# check.sh: format and lints, as CI runs them; changes nothing. `cargo fmt --all` mends the format.
set -euo pipefail
cd "$(dirname -- "${BASH_SOURCE[0]}")/.."
cargo fmt --all -- --check
cargo clippy --workspace --all-targets --locked -- -D warnings
