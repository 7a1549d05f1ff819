#!/usr/bin/env bash
# fuzz.sh [--inputs N] [--target T] [--seed S] [--jobs N] [--replay FILE]
#
# Mutated inputs, ten million for each target where nothing else is said, against everything that reads bytes of
# others: requests, answers of a source, record batches, the files of a log, the metadata log, property files, what
# a voter keeps and is sent. Optimized, and with checks of overflows and assertions on. Prints a line a target:
# inputs, inputs a second, largest allocation and what is allowed, failures. An input that fails is kept in
# target/fuzz-failures/TARGET; `fuzz.sh --replay FILE` reads it again. docs/fuzzing.md tells more.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
case ${1:-} in -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit ;; esac
cd "$here/.."
cargo build --profile fuzz --locked --quiet -p kagami-tests --bin fuzz
exec target/fuzz/fuzz "$@"
