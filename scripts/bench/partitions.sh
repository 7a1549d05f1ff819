#!/usr/bin/env bash
# partitions.sh [WORK_DIR] [PARTITIONS] [PORT_BASE]     one broker with many partitions (RF 1), default 20000
#
# Prints: produce throughput to ten partitions of a broker that has ten; then with PARTITIONS in all: seconds to
# create them, resident memory, threads and open files while idle, throughput to ten of them and its share of the
# first, seconds for a clean stop, seconds from the start to ready after it, resident memory then.
# Alternates five runs of each throughput and takes medians. KAGAMI_BIN as in cluster.sh.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
work=${1:-$(mktemp -d)}; many=${2:-20000}; base=${3:-39400}
exec python3 - "$here" "$work" "$many" "$base" <<'PY'
import json, os, signal, statistics, subprocess, sys, time
here, work, many, base = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sys.path[:0] = [here, os.path.join(here, "..", "kafka")]
import bench, kprobe as kp
cluster = os.path.join(here, "..", "cluster.sh")
RECORDS, SIZE = 400_000, 1024

def status(pid, key):
    return int(next(l.split()[1] for l in open(f"/proc/{pid}/status") if l.startswith(key + ":")))

class Cluster:
    def __init__(self, name, port):
        self.dir, self.port = os.path.join(work, name), port
        self.boot = subprocess.run([cluster, "up", self.dir, str(port), "1", "1"], check=True, capture_output=True, text=True).stdout.strip()
    def pid(self): return int(open(os.path.join(self.dir, "broker-1", "pid")).read())
    def verb(self, *words): subprocess.run([cluster, words[0], self.dir, *words[1:]], check=True)
    def produce(self):
        cmd = [bench.rkperf(), "produce", "-b", self.boot, "-t", "ten", "-n", str(RECORDS), "-s", str(SIZE), "-z", "-X", "acks=all"]
        return bench.run_json(cmd)["MB_s"]
    def usage(self, label):
        pid = self.pid()
        print(f"{label}: resident {status(pid, 'VmRSS') / 1024:.0f} MiB, peak {status(pid, 'VmHWM') / 1024:.0f} MiB, "
              f"{status(pid, 'Threads')} threads, {len(os.listdir(f'/proc/{pid}/fd'))} open files", flush=True)

few, full = Cluster("few", base), Cluster("full", base + 10)
try:
    for c in (few, full): bench.fresh_topic(c.boot, "ten", 10, 1)
    few.usage("10 partitions")
    begun, left, n = time.time(), many - 10, 0
    while left > 0:
        step = min(left, 1000); bench.fresh_topic(full.boot, f"idle-{n}", step, 1); left -= step; n += 1
    print(f"{many} partitions made in {time.time() - begun:.1f} s", flush=True)
    time.sleep(6)
    full.usage(f"{many} partitions, idle")
    cpu = bench.cpu(full.pid()); time.sleep(5); cpu = (bench.cpu(full.pid()) - cpu) / 5
    print(f"{many} partitions, idle: {cpu * 100:.1f} % of a core", flush=True)
    runs = [(few.produce(), full.produce()) for _ in range(5)]
    a, b = (statistics.median(x) for x in zip(*runs))
    print(f"produce to ten: {a:.1f} MB/s with 10 partitions, {b:.1f} MB/s with {many}: {100 * b / a:.0f} %", flush=True)
    begun = time.time(); full.verb("stop", "broker-1"); stopped = time.time() - begun
    begun = time.time(); full.verb("start", "broker-1")
    # Ready: the partitions have leaders again, as a client sees it.
    while True:
        try:
            with kp.first_up(full.boot, 30) as c:
                topic = c.metadata(["ten"])["topics"]["ten"]
                last = c.metadata([f"idle-{max(n - 1, 0)}"])["topics"][f"idle-{max(n - 1, 0)}"] if n else topic
                if all(not t["error"] and all(p["leader"] >= 0 for p in t["partitions"]) for t in (topic, last)): break
        except Exception: pass
        time.sleep(0.02)
    print(f"clean stop {stopped:.1f} s, start to ready {time.time() - begun:.2f} s", flush=True)
    full.usage(f"{many} partitions, after the restart")
finally:
    for c in (few, full): c.verb("down")
PY
