"""librdkafka through faults: an idempotent producer and a consumer that go on until the
input ends, and print what they saw: "ack VALUE PARTITION OFFSET", "assigned", "read PARTITION OFFSET
VALUE", and in the end "all ok". With RIDE_LOG, what librdkafka does is in that file."""
import os, sys, threading, time, traceback
from confluent_kafka import Consumer, Producer, TopicPartition, OFFSET_BEGINNING

brokers, topic, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
over, lock, failures, consumers = threading.Event(), threading.Lock(), [], []
debug = {}
if log := os.environ.get("RIDE_LOG"):
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), sys.stderr.fileno())
    debug = {"debug": "broker,metadata,topic,eos"}


def say(line):
    with lock:
        print(line, flush=True)


def fail(kind, reason, *_):
    """Whatever goes wrong in any thread ends the program: one that goes on without a part is silent for ever."""
    traceback.print_exception(reason)
    say(f"failed: {kind.__name__}: {reason}")
    os._exit(1)


sys.excepthook = fail
threading.excepthook = lambda e: fail(e.exc_type, e.exc_value)


def until_the_input_ends():
    sys.stdin.read()
    over.set()


def read():
    """Reads until the input ends, with one consumer after the other if need be: librdkafka's main thread may
    wait for ever for the thread of a broker that is no longer told of, and that for it, when a question for the end
    of a leader epoch is under way (confluentinc/librdkafka#5476). Nothing is heard of such a consumer any more,
    statistics included."""
    while not over.is_set():
        heard = [time.monotonic()]

        def hear(_, heard=heard):
            heard[0] = time.monotonic()

        c = Consumer({"bootstrap.servers": brokers, "group.id": "nobody", "enable.auto.commit": False,
                      "auto.offset.reset": "earliest", "reconnect.backoff.max.ms": 200, "socket.timeout.ms": 2000,
                      "topic.metadata.refresh.interval.ms": 2000, "statistics.interval.ms": 500,
                      "stats_cb": hear} | debug)
        consumers.append(c)  # For ever: to forget one that hangs is to wait for it.
        c.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(3)])
        say("assigned")
        while not over.is_set() and time.monotonic() - heard[0] < 10:
            m = c.poll(0.2)
            if m is not None and m.error() is None:
                say(f"read {m.partition()} {m.offset()} {m.value().decode()}")


def on_ack(err, m):
    offset = m.offset()
    if err is not None:
        failures.append(f"{m.value().decode()}: {err}")
    elif offset is None or offset == 0 and int(m.value()) != first + m.partition():
        # Known to be there, since a later one is (None) or as a duplicate (0), and not where.
        say(f"stored {m.value().decode()}")
    else:
        say(f"ack {m.value().decode()} {m.partition()} {offset}")


threading.Thread(target=until_the_input_ends, daemon=True).start()
reader = threading.Thread(target=read)
reader.start()
p = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": 120000,
              "request.timeout.ms": 2000, "socket.timeout.ms": 4000, "reconnect.backoff.max.ms": 200,
              "topic.metadata.refresh.interval.ms": 2000} | debug)
n = 0
while not over.is_set() and not failures:
    try:
        p.produce(topic, value=str(first + n), partition=n % 3, on_delivery=on_ack)
        n += 1
    except BufferError:
        pass
    p.poll(0)
    time.sleep(0.001)
left = p.flush(60)
over.set()
reader.join()
say("all ok" if left == 0 and not failures else f"failed: {left} are left, {failures[:1]}")
os._exit(0)  # Whatever hangs.
