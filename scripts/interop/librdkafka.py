"""The jobs of README.md with librdkafka, through its Python binding; idempotent, as Java's default is."""
import json
import sys
import time

from confluent_kafka import Producer


def send(producer, topic, partition, value):
    outcome = []
    producer.produce(topic, value, key=b"librdkafka", partition=partition, on_delivery=lambda error, message: outcome.append((error, message)))
    producer.flush(60)
    if not outcome:
        raise TimeoutError("no delivery report in 60 s")
    error, message = outcome[0]
    return error, None if error else message.offset()


def main():
    if len(sys.argv) != 6:
        print("usage: librdkafka.py refused|write BOOTSTRAP TOPIC PARTITION OTHER|VALUE")
        return
    job, bootstrap, topic, partition, last = sys.argv[1:]
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    if job == "write":
        error, offset = send(producer, topic, int(partition), last.encode())
        if error:
            raise SystemExit(str(error))
        print(json.dumps({"offset": offset}))
        return
    producer.list_topics(topic, timeout=20)
    begin = time.monotonic()
    error, _ = send(producer, topic, int(partition), b"must be refused")
    took = int((time.monotonic() - begin) * 1000)
    other_error, other = send(producer, last, 0, b"same producer, ordinary topic")
    print(json.dumps({"error": f"{error.code()} {error.str()}" if error else None, "refused_ms": took, "other_offset": -1 if other_error else other, "other_error": str(other_error) if other_error else None}))


main()
