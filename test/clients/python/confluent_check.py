"""librdkafka through confluent-kafka: produce, consume in a group, commit, seek, admin."""
import sys, time
from confluent_kafka import Consumer, Producer, TopicPartition, OFFSET_BEGINNING
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

bootstrap = sys.argv[1]
admin = AdminClient({"bootstrap.servers": bootstrap})
admin.create_topics([NewTopic("c-topic", num_partitions=4, replication_factor=1)])["c-topic"].result(20)
for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    acked = []
    p = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.codec": codec,
                  "linger.ms": 5, "partitioner": "murmur2_random"})

    def on_ack(err, msg):
        assert err is None, err
        acked.append((msg.partition(), msg.offset()))

    for i in range(2000):
        p.produce("c-topic", key=f"k{i % 50}", value=f"{codec}-{i}", headers={"n": str(i)}, on_delivery=on_ack)
        p.poll(0)
    assert p.flush(20) == 0
    assert len(set(acked)) == 2000, len(set(acked))
print("ok produce")

def consume(group, want, **extra):
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                  "enable.auto.commit": False, "session.timeout.ms": 6000, **extra})
    c.subscribe(["c-topic"])
    got, end = [], time.time() + 40
    while len(got) < want and time.time() < end:
        m = c.poll(1)
        if m is None:
            continue
        assert m.error() is None, m.error()
        got.append(m)
    c.commit(asynchronous=False)
    return c, got

c, got = consume("c-group", 10000)
assert len(got) == 10000, len(got)
assert len({(m.partition(), m.offset()) for m in got}) == 10000
order = {}
for m in got:  # per key, within one codec's run, the numbers rise
    codec, n = m.value().decode().rsplit("-", 1)
    k = (m.key(), codec)
    assert order.get(k, -1) < int(n)
    order[k] = int(n)
print("ok consume")
committed = c.committed([TopicPartition("c-topic", i) for i in range(4)])
assert sum(tp.offset for tp in committed) == 10000, committed
low, high = c.get_watermark_offsets(TopicPartition("c-topic", 0))
assert low == 0 and high == committed[0].offset
c.seek(TopicPartition("c-topic", 0, OFFSET_BEGINNING))
end = time.time() + 20
m = None
while time.time() < end and m is None:
    m = c.poll(1)
assert m is not None and m.partition() == 0 and m.offset() == 0
c.close()
print("ok commit and seek")

c, got = consume("c-group-coop", 10000, **{"partition.assignment.strategy": "cooperative-sticky"})
assert len(got) == 10000
c.close()
print("ok cooperative")

admin.create_partitions([NewPartitions("c-topic", 6)])["c-topic"].result(20)
assert len(admin.list_topics("c-topic", timeout=20).topics["c-topic"].partitions) == 6
res = ConfigResource(ConfigResource.Type.TOPIC, "c-topic")
assert admin.describe_configs([res])[res].result(20)["retention.ms"].value == "604800000"
groups = admin.list_consumer_groups().result(20)
assert "c-group" in [g.group_id for g in groups.valid]
admin.delete_consumer_groups(["c-group"])["c-group"].result(20)
admin.delete_topics(["c-topic"])["c-topic"].result(20)
print("all ok")
