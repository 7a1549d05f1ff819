#!/usr/bin/env bash
# python.sh PROGRAM args…: runs a program of this folder in an environment that has kafka-python and
# confluent-kafka (librdkafka).
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
[ $# -ge 1 ] || die "usage: python.sh PROGRAM args…"
install() { "${PYTHON:-python3}" -m venv "$1/venv" && "$1/venv/bin/pip" -q install kafka-python==3.0.12 confluent-kafka==2.16.1; }
once python install
program=$1; shift
exec "$INTEROP_CACHE/python/venv/bin/python" "$INTEROP_DIR/$program" "$@"
