"""The jobs of README.md with kafka-python."""
import json
import sys
import time

from kafka import KafkaProducer


def send(producer, topic, partition, value):
    return producer.send(topic, value, key=b"kafka-python", partition=partition).get(timeout=60).offset


def main():
    if len(sys.argv) != 6:
        print("usage: kafka_python.py refused|write BOOTSTRAP TOPIC PARTITION OTHER|VALUE")
        return
    job, bootstrap, topic, partition, last = sys.argv[1:]
    # Its idempotent producer takes every final error of any broker for fatal and never writes again
    # (TransactionManager.classify_batch_error of 3.0.12), whatever the error says.
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all", enable_idempotence=False)
    if job == "write":
        print(json.dumps({"offset": send(producer, topic, int(partition), last.encode())}))
        return
    producer.partitions_for(topic)
    begin, error = time.monotonic(), None
    try:
        send(producer, topic, int(partition), b"must be refused")
    except Exception as e:  # noqa: BLE001: whatever it is, it is the answer
        error = repr(e)
    took = int((time.monotonic() - begin) * 1000)
    other = send(producer, last, 0, b"same producer, ordinary topic")
    print(json.dumps({"error": error, "refused_ms": took, "other_offset": other}))
    producer.close(timeout=5)


main()
