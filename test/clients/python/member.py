"""A member of a group that prints `partition offset key value` and commits what it has printed, and nothing else."""
import sys
from confluent_kafka import Consumer, TopicPartition

bootstrap, group, topic = sys.argv[1:]
c = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
              "enable.auto.commit": False, "enable.auto.offset.store": False,
              "session.timeout.ms": 6000, "heartbeat.interval.ms": 500})
c.subscribe([topic])
lines, ends = [], {}
while True:
    m = c.poll(0.2)
    if m is not None:
        assert m.error() is None, m.error()
        lines.append(f"{m.partition()} {m.offset()} {m.key().decode()} {m.value().decode()}\n")
        ends[m.partition()] = m.offset() + 1
    if lines and (m is None or len(lines) == 2000):
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
        try:
            c.commit(offsets=[TopicPartition(topic, p, end) for p, end in ends.items()], asynchronous=True)
        except Exception as e:  # Partitions may just have moved: the other member reads on from the last commit.
            print(e, file=sys.stderr)
        lines, ends = [], {}
