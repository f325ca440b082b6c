"""A member of a group that prints `partition offset key value` and commits what it has printed."""
import sys
from confluent_kafka import Consumer

bootstrap, group, topic = sys.argv[1:]
c = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
              "enable.auto.commit": False, "session.timeout.ms": 6000, "heartbeat.interval.ms": 500})
c.subscribe([topic])
while True:
    records = c.consume(num_messages=2000, timeout=1)
    if not records:
        continue
    for m in records:
        assert m.error() is None, m.error()
    sys.stdout.write("".join(f"{m.partition()} {m.offset()} {m.key().decode()} {m.value().decode()}\n" for m in records))
    sys.stdout.flush()
    try:
        c.commit(asynchronous=True)
    except Exception as e:  # Partitions may just have moved: the other member reads on from the last commit.
        print(e, file=sys.stderr)
