#!/usr/bin/env bash
# replication.sh WORK_DIR OUT.jsonl [rf3 e2e3 controller broker pause shutdown]      three brokers, Kagami beside real Kafka
#
#   rf3         produce, 1 KiB and 100 bytes, acks=all, replication factor 3: throughput and the brokers' CPU seconds per GB
#   e2e3        end to end at replication factor 3: 2,000 and 500 batches of one record a second
#   controller  kill -9 of the active controller (of three) to the first topic created
#   broker      kill -9 of a broker to the first acknowledged produce on every partition that it led
#   pause       the same for a broker that stands still (SIGSTOP)
#   shutdown    SIGTERM to a broker, under a client: until the process is gone, and what the client saw fail
#
# Everything at default settings. The first two measure the systems in turn, RUNS times (default 3), while the other one
# idles; the rest measures one system after the other: RUNS times, and "controller" TIMES times (default 10). Ends with
# the ratios (ratios.py). SYSTEMS ("kafka kagami") may name one of them alone. Needs what compare.sh needs.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
export KAFKA_HARNESS=$here/../kafka KAGAMI_BIN=${KAGAMI_BIN:-$here/../../target/release}
[ $# -ge 2 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"; W=$(cd "$1" && pwd -P); touch "$2"; OUT=$(realpath "$2"); shift 2
RUNS=${RUNS:-3} TIMES=${TIMES:-10} P=${PORT:-22000} SYSTEMS=${SYSTEMS:-kafka kagami}
export KAFKA_UP_TIMEOUT=${KAFKA_UP_TIMEOUT:-240}
port() { case $1 in kafka) echo "$P";; kagami) echo $((P + 100));; esac; }
boot() { local p; p=$(port "$1"); echo "127.0.0.1:$p,127.0.0.1:$((p + 1)),127.0.0.1:$((p + 2))"; }
up() { # SYSTEM CONTROLLERS
  case $1 in
    kafka) KAFKA_CONTROLLERS=$2 "$KAFKA_HARNESS/kafka-up.sh" "$W/kafka" "$(port kafka)" 3 >/dev/null;;
    kagami) "$here/../cluster.sh" up "$W/kagami" "$(port kagami)" 3 "$2" >/dev/null;;
  esac
}
down() {
  [ -d "$W/$1" ] || return 0
  case $1 in
    kafka) "$KAFKA_HARNESS/kafka-down.sh" "$W/kafka" --wipe >/dev/null;;
    kagami) "$here/../cluster.sh" down "$W/kagami" --wipe;;
  esac
  rm -rf "${W:?}/$1"
}
trap 'down kafka; down kagami' EXIT
start() { # SYSTEM KIND: a command, for a node that was stopped
  case $1 in
    kafka) echo "'$KAFKA_HARNESS/kafka-node.sh' start '$W/kafka' $2-{id}";;
    kagami) echo "'$here/../cluster.sh' start '$W/kagami' $2-{id}";;
  esac
}
signal() { echo "kill -$3 \$(cat '$W/$1/$2-{id}/pid')"; }
bench() { # SYSTEM OPTION...
  local system=$1; shift
  python3 "$here/bench.py" --out "$OUT" --label "$system" --bootstrap "$(boot "$system")" --nodes "$W/$system" --rf 3 "$@" >/dev/null
}
warm() { OUT=/dev/null bench "$1" --runs 1 throughput --gen rk --records 300000 || true; }
all_up() { for s in $SYSTEMS; do up "$s" 1; done; for s in $SYSTEMS; do warm "$s"; done; }
all_down() { for s in $SYSTEMS; do down "$s"; done; }

p_rf3() {
  all_up
  for ((r = 0; r < RUNS; r++)); do for size in 1024 100; do for s in $SYSTEMS; do
    bench "$s" --runs 1 --size $size throughput --gen rk --records $((size == 1024 ? 1000000 : 3000000))
    sleep 3
  done; done; done
  all_down
}
p_e2e3() {
  all_up
  for ((r = 0; r < RUNS; r++)); do for rate in 2000 500; do for s in $SYSTEMS; do
    bench "$s" --runs 1 e2e --rate $rate --single
  done; done; done
  all_down
}
# $1: what to measure with one system's cluster of three controllers and three brokers
alone() { for s in $SYSTEMS; do up "$s" 3; "$1" "$s"; down "$s"; done; }
controller() { bench "$1" --runs "$TIMES" controller --kill "$(signal "$1" controller KILL)" --restart "$(start "$1" controller)"; }
broker() { bench "$1" --runs "$RUNS" failover --kill "$(signal "$1" broker KILL)" --restart "$(start "$1" broker)"; }
pause() { bench "$1" --runs "$RUNS" pause --kill "$(signal "$1" broker STOP)" --restart "$(signal "$1" broker CONT)"; }
shutdown() { bench "$1" --runs "$RUNS" shutdown --pid-file "$W/$1/broker-{id}/pid" --restart "$(start "$1" broker)"; }
p_controller() { alone controller; }
p_broker() { alone broker; }
p_pause() { alone pause; }
p_shutdown() { alone shutdown; }
[ $# -gt 0 ] || set -- rf3 e2e3 controller broker pause shutdown
for part; do echo "== $part $(date -u +%T)" >&2; "p_$part"; done
python3 "$here/ratios.py" "$OUT"
