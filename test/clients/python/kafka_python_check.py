"""kafka-python: produce, consume in a group, commit, seek, offsets by time, admin."""
import sys, time
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

bootstrap = sys.argv[1]
admin = KafkaAdminClient(bootstrap_servers=bootstrap)
admin.create_topics([NewTopic("kp-topic", num_partitions=3, replication_factor=1)])
for codec in (None, "gzip"):
    p = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, acks="all", linger_ms=5)
    futures = [p.send("kp-topic", key=b"k%d" % (i % 20), value=b"v%d" % i, headers=[("h", b"x")]) for i in range(1000)]
    p.flush(20)
    offsets = {(f.get(10).partition, f.get(10).offset) for f in futures}
    assert len(offsets) == 1000
    p.close()
print("ok produce")
c = KafkaConsumer("kp-topic", bootstrap_servers=bootstrap, group_id="kp-group", auto_offset_reset="earliest",
                  enable_auto_commit=False, session_timeout_ms=6000, heartbeat_interval_ms=500)
got, end = 0, time.time() + 40
while got < 2000 and time.time() < end:
    for records in c.poll(timeout_ms=500).values():
        got += len(records)
assert got == 2000, got
c.commit()
total = sum(c.committed(TopicPartition("kp-topic", i)) or 0 for i in range(3))
assert total == 2000, total
tp = TopicPartition("kp-topic", 0)
assert c.beginning_offsets([tp])[tp] == 0
assert c.offsets_for_times({tp: 0})[tp].offset == 0
c.seek_to_beginning(tp)
end, first = time.time() + 20, None
while first is None and time.time() < end:
    for records in c.poll(timeout_ms=500).values():
        first = first or records[0]
assert first is not None and first.offset == 0
c.close()
print("ok consume, commit, seek")
admin.delete_topics(["kp-topic"])
print("all ok")
