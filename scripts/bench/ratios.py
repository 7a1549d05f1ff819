#!/usr/bin/env python3
"""ratios.py OUT.jsonl: medians of Kagami and of Kafka (with MirrorMaker 2) from compare.sh, and their ratios."""
import json, statistics, sys

BYTES = {("produce", 1024): 1.024, ("consume", 1024): 1.024, ("produce", 100): 0.3, ("consume", 100): 0.3}
rows = {}
for line in open(sys.argv[1]):
    r = json.loads(line)
    if r["label"] not in ("kafka", "kagami"): continue
    bench, size = r["bench"], r.get("size")
    name = f"{bench} {size} B" if bench in ("produce", "consume") else bench
    put = lambda what, value: rows.setdefault((name, what), {}).setdefault(r["label"], []).append(value)
    cpu = sum(v for v in r.get("cpu_s", {}).values())
    put("foreign cores", r.get("foreign_cores", 0))
    put("peak RSS MB", sum(v or 0 for v in r.get("rss_peak_MB", {}).values()))
    if bench in ("produce", "consume"):
        put("MB/s", r["MB_s"]); put("CPU s/GB", cpu / BYTES[(bench, size)])
    elif bench == "drain":
        put("MB/s", r["MB_s"]); put("CPU s/GB", cpu / (r["bytes"] / 1e9))
    elif bench in ("e2e", "lag"):
        for q in ("p50", "p99"): put(f"{q} ms", r["lat_ms"][q])
print("| measurement | figure | Kafka | Kagami | Kagami / Kafka | runs |\n| --- | --- | --- | --- | --- | --- |")
for (name, what), by in rows.items():
    k, g = by.get("kafka"), by.get("kagami")
    m = lambda x: f"{statistics.median(x):.3g}" if x else "-"
    ratio = f"{statistics.median(g) / statistics.median(k):.2f}" if k and g and statistics.median(k) else "-"
    print(f"| {name} | {what} | {m(k)} | {m(g)} | {ratio} | {len(k or [])}, {len(g or [])} |")
