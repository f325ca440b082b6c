"""Transactions of librdkafka through confluent-kafka."""
import sys, time
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap = sys.argv[1]
admin = AdminClient({"bootstrap.servers": bootstrap})
for future in admin.create_topics([NewTopic(t, num_partitions=2, replication_factor=1)
                                   for t in ("ct-in", "ct-out")]).values():
    future.result(20)

def producer(transactional_id, **extra):
    p = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **extra})
    p.init_transactions(20)
    return p

def consumer(group):
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "isolation.level": "read_committed", "session.timeout.ms": 6000})

def committed(topic):
    """Reads a topic to its last stable offset."""
    c = consumer("ct-reader")
    partitions = [TopicPartition(topic, i, 0) for i in range(2)]
    ends = {tp.partition: c.get_watermark_offsets(tp, timeout=20)[1] for tp in partitions}
    c.assign(partitions)
    got, quiet, end = [], 0, time.time() + 30
    while quiet < 4 and time.time() < end:
        m = c.poll(0.5)
        if m is None:
            quiet += 1
            continue
        assert m.error() is None, m.error()
        got.append(m.value().decode())
        quiet = 0
    c.close()
    return sorted(got), ends

p, want = producer("ct-1"), []
for i in range(20):
    p.begin_transaction()
    for k in range(4):
        p.produce("ct-in", value=f"{i}-{k}", partition=k % 2)
    if i % 4 == 3:
        p.abort_transaction(20)
        continue
    p.commit_transaction(20)
    want += [f"{i}-{k}" for k in range(4)]
assert committed("ct-in")[0] == sorted(want)
print("ok commit and abort")

p.begin_transaction()
p.produce("ct-in", value="zombie", partition=0)
p.flush(20)
newer = producer("ct-1")
newer.begin_transaction()
newer.produce("ct-in", value="newer", partition=0)
newer.commit_transaction(20)
want.append("newer")
try:
    p.commit_transaction(20)
    raise AssertionError("a producer that was replaced has committed")
except KafkaException as e:
    assert e.args[0].fatal() or e.args[0].txn_requires_abort(), e
    print("  fenced:", e)
assert committed("ct-in")[0] == sorted(want)
print("ok zombie")

t, c = producer("ct-transform"), consumer("ct-group")
c.subscribe(["ct-in"])
done, rounds, end = 0, 0, time.time() + 60
while done < len(want) and time.time() < end:
    batch = [m for m in c.consume(10, 1) if m.error() is None]
    if not batch:
        continue
    rounds += 1
    t.begin_transaction()
    at = {}
    for m in batch:
        t.produce("ct-out", value=m.value().decode() + "!", partition=m.partition())
        at[m.partition()] = max(at.get(m.partition(), 0), m.offset() + 1)
    t.send_offsets_to_transaction([TopicPartition("ct-in", i, o) for i, o in at.items()],
                                  c.consumer_group_metadata(), 20)
    if rounds % 3 == 1:
        t.abort_transaction(20)
        for tp in c.committed(c.assignment(), 20):
            tp.offset = max(tp.offset, 0)
            c.seek(tp)
        continue
    t.commit_transaction(20)
    done += len(batch)
c.close()
got = committed("ct-out")[0]
assert got == sorted(w + "!" for w in want), (len(got), len(want))
print("ok offsets")
print("all ok")
