#!/usr/bin/env bash
# node.sh PROGRAM args…: runs a program of this folder with kafkajs at hand.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
[ $# -ge 1 ] || die "usage: node.sh PROGRAM args…"
install() {
  echo '{"name":"interop","private":true}' >"$1/package.json"
  (cd "$1" && npm install --no-audit --no-fund --ignore-scripts kafkajs@2.2.4)
}
once node install
program=$1; shift
NODE_PATH=$INTEROP_CACHE/node/node_modules exec node "$INTEROP_DIR/$program" "$@"
