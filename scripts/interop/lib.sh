# Shared by the scripts beside it (sourced, not run): where the foreign clients are kept.
#   INTEROP_CACHE  cache folder (default: <user cache dir>/kagami-interop)
set -euo pipefail
INTEROP_DIR=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
INTEROP_CACHE=${INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kagami-interop}
. "$INTEROP_DIR/../kafka/lib.sh"
mkdir -p "$INTEROP_CACHE"

# once NAME COMMAND…: runs a command that fills $INTEROP_CACHE/NAME, once, whoever asks first
once() {
  local ready=$INTEROP_CACHE/$1; shift
  [ ! -f "$ready/.ready" ] || return 0
  (
    flock 9
    [ ! -f "$ready/.ready" ] || exit 0
    rm -rf "$ready"; mkdir -p "$ready"
    "$@" "$ready" >"$ready/set-up.log" 2>&1 || { tail -n 5 "$ready/set-up.log" >&2; die "set-up of $(basename -- "$ready") failed"; }
    touch "$ready/.ready"
  ) 9>"$ready.lock"
}
