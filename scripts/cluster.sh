#!/usr/bin/env bash
# cluster.sh up DIR PORT_BASE [BROKERS] [CONTROLLERS]     formats and starts a cluster, prints its bootstrap address
# cluster.sh down DIR [--wipe]                            stops it (SIGTERM)
# cluster.sh start|stop|kill DIR NODE                     one node: broker-1, controller-101
#
# Brokers are nodes 1... on PORT_BASE+0...; controllers are nodes 101... with Kafka's protocol on PORT_BASE+50... and
# gRPC on PORT_BASE+70.... Each node has a directory with node.properties, data/, server.log and pid, as the clusters
# of scripts/kafka have, so the measurements in scripts/bench read both alike.
#   KAGAMI_BIN     where the programs are (default: target/release of this tree)
#   KAGAMI_PROPS   further lines for every node's properties; the last line of a key wins
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
bin=${KAGAMI_BIN:-$here/../target/release}
die() { echo "cluster.sh: $*" >&2; exit 1; }
[ $# -ge 2 ] || die "usage: cluster.sh up DIR PORT_BASE [BROKERS] [CONTROLLERS] | down DIR [--wipe] | start|stop|kill DIR NODE"
verb=$1; mkdir -p "$2"; dir=$(cd -- "$2" && pwd -P)

start_node() {
  local node=$dir/$1 program=kagami-broker
  case $1 in controller-*) program=kagami-controller;; esac
  ( cd "$node" && exec setsid "$bin/$program" --config node.properties >>server.log 2>&1 </dev/null ) &
  echo $! >"$node/pid"
}
stop_node() { # SIGNAL NODE
  local pid i; pid=$(cat "$dir/$2/pid" 2>/dev/null) || return 0
  kill -s "$1" "$pid" 2>/dev/null || true
  for ((i = 0; i < 300; i++)); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
  rm -f "$dir/$2/pid"
}
case $verb in
up)
  base=$3; brokers=${4:-1}; controllers=${5:-1}
  if [ ! -f "$dir/nodes" ]; then
    id=$("$bin/kagami" storage random-uuid); voters=; bootstrap=
    rf=$((brokers < 3 ? brokers : 3)); isr=$((rf > 1 ? rf - 1 : 1))
    for ((i = 0; i < controllers; i++)); do voters+=${voters:+,}$((101 + i))@127.0.0.1:$((base + 70 + i)); done
    for ((i = 0; i < brokers; i++)); do bootstrap+=${bootstrap:+,}127.0.0.1:$((base + i)); done
    node() { # NAME ID LISTENER-LINES
      mkdir -p "$dir/$1/data"
      { printf 'node.id=%s\ncontroller.quorum.voters=%s\nlog.dirs=%s\n%s\n' "$2" "$voters" "$dir/$1/data" "$3"
        printf 'default.replication.factor=%s\nmin.insync.replicas=%s\nmirror.state.topic.replication.factor=%s\nmirror.state.topic.min.isr=%s\nmirror.state.topic.num.partitions=8\n%s\n' "$rf" "$isr" "$rf" "$isr" "${KAGAMI_PROPS:-}"; } >"$dir/$1/node.properties"
      "$bin/kagami" storage format --config "$dir/$1/node.properties" --cluster-id "$id" >/dev/null
      echo "$1" >>"$dir/nodes"
    }
    for ((i = 0; i < controllers; i++)); do
      node controller-$((101 + i)) $((101 + i)) "listeners=CONTROLLER://127.0.0.1:$((base + 50 + i))"$'\n'"quorum.listener=127.0.0.1:$((base + 70 + i))"
    done
    for ((i = 0; i < brokers; i++)); do node broker-$((1 + i)) $((1 + i)) "listeners=PLAINTEXT://127.0.0.1:$((base + i))"; done
    echo "$bootstrap" >"$dir/bootstrap"; echo "$brokers" >"$dir/n_brokers"
  fi
  while read -r n; do start_node "$n"; done <"$dir/nodes"
  bootstrap=$(cat "$dir/bootstrap")
  python3 "$here/kafka/kprobe.py" wait "${bootstrap%%,*}" --brokers "$(cat "$dir/n_brokers")" --timeout 30 >/dev/null || die "not ready; see $dir/*/server.log"
  echo "$bootstrap" ;;
down)
  while read -r n; do case $n in broker-*) stop_node TERM "$n" & ;; esac; done <"$dir/nodes"; wait
  while read -r n; do case $n in controller-*) stop_node TERM "$n" & ;; esac; done <"$dir/nodes"; wait
  [ "${3:-}" != --wipe ] || rm -rf "$dir" ;;
start) start_node "$3" ;;
stop) stop_node TERM "$3" ;;
kill) stop_node KILL "$3" ;;
*) die "unknown verb $verb" ;;
esac
