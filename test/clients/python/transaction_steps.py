"""A transactional producer of librdkafka that is told each step: BOOTSTRAP ID TOPIC
TIMEOUT-MS. It reads "init", "begin", "send PARTITION VALUE", "offsets PARTITION OFFSET
GROUP", "commit" and "abort", and answers each with "ok" or with the error."""
import sys, time
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

brokers, transactional_id, topic, timeout_ms = sys.argv[1:]
producer = Producer({"bootstrap.servers": brokers, "transactional.id": transactional_id,
                     "transaction.timeout.ms": int(timeout_ms)})


def again(step, *arguments):
    """Takes a step until it is taken: librdkafka leaves that to the application."""
    end = time.time() + 60
    while True:
        try:
            return step(*arguments, 10)
        except KafkaException as e:
            if not e.args[0].retriable() or time.time() > end:
                raise


def send(partition, value):
    results = []
    producer.produce(topic, value=value, partition=int(partition), on_delivery=lambda err, _: results.append(err))
    end = time.time() + 60
    while not results and time.time() < end:
        producer.poll(0.1)
    if not results or results[0] is not None:
        raise KafkaException(results[0] if results else "not delivered within 60 s")


def offsets(partition, offset, group):
    # A consumer only for what it knows of its group.
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": group, "enable.auto.commit": False})
    again(producer.send_offsets_to_transaction, [TopicPartition(topic, int(partition), int(offset))],
          consumer.consumer_group_metadata())
    consumer.close()


steps = {"init": lambda: again(producer.init_transactions), "begin": producer.begin_transaction, "send": send,
         "offsets": offsets, "commit": lambda: again(producer.commit_transaction),
         "abort": lambda: again(producer.abort_transaction)}
for line in sys.stdin:
    step, *arguments = line.split()
    try:
        steps[step](*arguments)
        print("ok", flush=True)
    except KafkaException as e:
        print(repr(e), flush=True)
