#!/usr/bin/env bash
# prepare.sh: fetches and builds everything that the interop runs use, so that no run waits for it.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
for version in "" 3.6.2 2.8.2; do KAFKA_VERSION=$version "$here/../kafka/fetch.sh" kafka; done
"$here/java.sh" Produce --help >/dev/null
"$here/python.sh" kafka_python.py --help >/dev/null
"$here/node.sh" kafkajs.js --help >/dev/null
