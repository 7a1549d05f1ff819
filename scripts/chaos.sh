#!/usr/bin/env bash
# chaos.sh [--minutes N | --faults N] [--seed S] [--no-full-disks]
#
# Breaks a cluster of three controllers and three brokers under load: kill -9, SIGSTOP, clean restarts, links that are
# cut, slow or half-open, full disks. Afterwards the clients' history is checked, by the program itself and by an
# independent checker, and so are all replicas' logs and all nodes' metadata images. Ends with one line: faults by kind,
# acknowledged, lost, duplicate, inconsistent. The seed in the first line gives the same plan again.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
case ${1:-} in -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit ;; esac
cd "$here/.."
cargo build --release --locked --bins --quiet
history=$(mktemp)
trap 'rm -f "$history"' EXIT
target/release/chaos --history "$history" "$@"
python3 scripts/suites/history_check.py "$history"
