#!/usr/bin/env bash
# compare.sh WORK_DIR OUT.jsonl [produce e2e mirror lag]      Kagami beside real Kafka and MirrorMaker 2, in one run
#
# Each part measures the two systems in turn, RUNS times (default 3), on the same machine, with the same generator and
# the same data, and ends with the ratios (ratios.py). One part at a time; a run in which other processes used more than
# 0.2 core (foreign_cores) is no figure for a record. Needs a release build (KAGAMI_BIN: another one), a JDK, Maven,
# python3, a C compiler and librdkafka's headers.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
export KAFKA_HARNESS=$here/../kafka KAGAMI_BIN=${KAGAMI_BIN:-$here/../../target/release}
[ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"; W=$(cd "$1" && pwd -P); touch "$2"; OUT=$(realpath "$2"); shift 2
RUNS=${RUNS:-3}; P=${PORT:-21000}
bench() { python3 "$here/bench.py" --out "$OUT" --runs 1 "$@" >/dev/null; }
kafka_up() { "$KAFKA_HARNESS/kafka-up.sh" "$W/$1" "$2" >/dev/null; }
kafka_down() { [ ! -d "$W/$1" ] || "$KAFKA_HARNESS/kafka-down.sh" "$W/$1" --wipe >/dev/null; rm -rf "${W:?}/$1"; }
kagami_up() { "$here/../cluster.sh" up "$W/$1" "$2" >/dev/null; }
kagami_down() { [ ! -d "$W/$1" ] || "$here/../cluster.sh" down "$W/$1" --wipe; }
trap 'kafka_down k; kafka_down A; kafka_down B; kagami_down g; kagami_down G; [ ! -d "$W/mm2" ] || "$KAFKA_HARNESS/kafka-down.sh" "$W/mm2" >/dev/null' EXIT

# both LABELS' clusters run; the one that is not measured idles
pair() { kafka_up k "$P"; kagami_up g $((P + 100)); bench --bootstrap 127.0.0.1:$P --label warm --out /dev/null throughput --gen rk --records 300000 || true; }
p_produce() {
  pair
  for ((r = 0; r < RUNS; r++)); do for size in 1024 100; do
    n=$((size == 1024 ? 1000000 : 3000000))
    bench --label kafka --bootstrap 127.0.0.1:$P --nodes "$W/k" --size $size throughput --gen rk --records $n --consume
    bench --label kagami --bootstrap 127.0.0.1:$((P + 100)) --nodes "$W/g" --size $size throughput --gen rk --records $n --consume
  done; done
  kafka_down k; kagami_down g
}
p_e2e() {
  pair
  for ((r = 0; r < RUNS; r++)); do
    bench --label kafka --bootstrap 127.0.0.1:$P --nodes "$W/k" --size 1024 e2e --rate 2000
    bench --label kagami --bootstrap 127.0.0.1:$((P + 100)) --nodes "$W/g" --size 1024 e2e --rate 2000
  done
  kafka_down k; kagami_down g
}
A=127.0.0.1:$P B=127.0.0.1:$((P + 100)) G=127.0.0.1:$((P + 200))
p_mirror() { # 1 GiB, 8 partitions, from one real Kafka: into real Kafka by MirrorMaker 2, into Kagami by itself
  kafka_up A "$P"
  for ((r = 0; r < RUNS; r++)); do
    kafka_down B; rm -rf "$W/mm2"; kafka_up B $((P + 100))
    MM2_TASKS=8 bench --label kafka --bootstrap $A --nodes "$W/B,$W/mm2" drain --dest $B --records 1048576 \
      --mirror-start "'$KAFKA_HARNESS/mm2-up.sh' '$W/mm2' $A $B backlog" --mirror-stop "'$KAFKA_HARNESS/kafka-down.sh' '$W/mm2'"
    kafka_down B; kagami_down G; kagami_up G $((P + 200))
    bench --label kagami --bootstrap $A --nodes "$W/G" drain --dest $G --records 1048576 \
      --mirror-start "'$KAGAMI_BIN/kagami' mirror create --bootstrap-server $G --mirror m --source $A >&2 && '$KAGAMI_BIN/kagami' mirror add --bootstrap-server $G --mirror m --topic backlog >&2" --mirror-stop true
    kagami_down G
  done
  kafka_down A
}
p_lag() {
  kafka_up A "$P"; kagami_up G $((P + 200))
  topic=$(python3 "$KAFKA_HARNESS/kprobe.py" create $A steady 1 8 >/dev/null; python3 "$KAFKA_HARNESS/kprobe.py" metadata $A | grep -o 'steady[^"]*' | head -n 1)
  "$KAGAMI_BIN/kagami" mirror create --bootstrap-server $G --mirror m --source $A >/dev/null
  "$KAGAMI_BIN/kagami" mirror add --bootstrap-server $G --mirror m --topic "$topic" --wait >/dev/null
  bench --label warm --out /dev/null --bootstrap $A lag --dest $G --topic "$topic" || true
  for ((r = 0; r < RUNS; r++)); do bench --label kagami --bootstrap $A --nodes "$W/G" lag --dest $G --topic "$topic"; done
  kagami_down G; kafka_up B $((P + 100)); "$KAFKA_HARNESS/mm2-up.sh" "$W/mm2" $A $B "$topic"
  sleep 5
  bench --label warm --out /dev/null --bootstrap $A lag --dest $B --topic "$topic" || true
  for ((r = 0; r < RUNS; r++)); do bench --label kafka --bootstrap $A --nodes "$W/B,$W/mm2" lag --dest $B --topic "$topic"; done
  "$KAFKA_HARNESS/kafka-down.sh" "$W/mm2" >/dev/null; kafka_down B; kafka_down A
}
[ $# -gt 0 ] || set -- produce e2e mirror lag
for part; do echo "== $part $(date -u +%T)" >&2; "p_$part"; done
python3 "$here/ratios.py" "$OUT"
