#!/usr/bin/env python3
"""ratios.py OUT.jsonl: medians of Kagami and of Kafka (with MirrorMaker 2) from compare.sh or replication.sh, and their ratios."""
import json, statistics, sys

rows = {}
for line in open(sys.argv[1]):
    r = json.loads(line)
    if r["label"] not in ("kafka", "kagami"): continue
    bench, size, rf = r["bench"], r.get("size"), f" RF {r['rf']}" if r.get("rf", -1) > 1 else ""
    name = f"{bench}{rf} {size} B" if bench in ("produce", "consume") else f"{bench}{rf} {r['rate']}/s" if bench in ("e2e", "lag") else bench
    put = lambda what, value: rows.setdefault((name, what), {}).setdefault(r["label"], []).append(value)
    # With controllers in processes of their own, the brokers alone are meant where there are three of them.
    brokers = {k: v for k, v in r.get("cpu_s", {}).items() if not rf or not k.startswith("controller")}
    cpu = sum(brokers.values())
    put("foreign cores", r.get("foreign_cores", 0))
    if r.get("rss_peak_MB"): put("peak RSS MB", sum(v or 0 for v in r["rss_peak_MB"].values()))
    if bench in ("produce", "consume"):
        put("MB/s", r["MB_s"]); put("CPU s/GB", cpu / (r["records"] * size / 1e9))
    elif bench == "drain":
        put("MB/s", r["MB_s"]); put("CPU s/GB", cpu / (r["bytes"] / 1e9))
    elif bench in ("e2e", "lag"):
        for q in ("p50", "p99"): put(f"{q} ms", r["lat_ms"][q])
        if cpu: put("CPU s per million records", cpu / r["sent"] * 1e6)
    elif bench in ("failover", "pause"):
        put("first partition s", r["first_s"] or 60); put("all partitions s", r["all_s"] or 60)
    elif bench == "controller":
        put("topic created s", r["create_ok_s"])
    elif bench == "shutdown":
        put("process gone s", r["ended_s"]); put("produces failed", r["failed"]); put("longest end to end ms", r["lat_ms"]["max"])
print("| measurement | figure | Kafka | Kagami | Kagami / Kafka | runs |\n| --- | --- | --- | --- | --- | --- |")
for (name, what), by in rows.items():
    k, g = by.get("kafka"), by.get("kagami")
    m = lambda x: f"{statistics.median(x):.3g}" if x else "-"
    ratio = f"{statistics.median(g) / statistics.median(k):.2f}" if k and g and statistics.median(k) else "-"
    print(f"| {name} | {what} | {m(k)} | {m(g)} | {ratio} | {len(k or [])}, {len(g or [])} |")
