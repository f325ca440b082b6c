import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * The Java client through faults: an idempotent producer and a consumer that go on until
 * the input ends, and print what they saw: "ack VALUE PARTITION OFFSET", "stored VALUE" for
 * an acknowledgement without an offset, "read PARTITION OFFSET VALUE", and in the end
 * "all ok".
 */
public class Ride {
  public static void main(String[] args) throws Exception {
    String brokers = args[0], topic = args[1];
    long first = Long.parseLong(args[2]);
    AtomicBoolean over = new AtomicBoolean();
    // One that goes on without a part of it is silent for ever.
    Thread.setDefaultUncaughtExceptionHandler((thread, e) -> {
      e.printStackTrace();
      say("failed: " + e);
      Runtime.getRuntime().halt(1);
    });
    Thread input = new Thread(() -> {
      try {
        while (System.in.read() >= 0) { }
      } catch (java.io.IOException e) {
        // The end as well.
      }
      over.set(true);
    });
    input.setDaemon(true);
    input.start();
    Thread reader = new Thread(() -> read(brokers, topic, over));
    reader.start();
    Properties p = new Properties();
    p.put("bootstrap.servers", brokers);
    p.put("enable.idempotence", "true");
    p.put("acks", "all");
    p.put("linger.ms", "1");
    p.put("request.timeout.ms", "2000");
    p.put("delivery.timeout.ms", "120000");
    patience(p);
    List<String> failures = Collections.synchronizedList(new ArrayList<>());
    try (Producer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
      for (long n = 0; !over.get() && failures.isEmpty(); n++) {
        String value = Long.toString(first + n);
        producer.send(new ProducerRecord<>(topic, (int) (n % 3), null, value), (m, e) -> {
          if (e != null) {
            failures.add(value + ": " + e);
          } else if (!m.hasOffset()) {
            say("stored " + value);
          } else {
            say("ack " + value + " " + m.partition() + " " + m.offset());
          }
        });
        Thread.sleep(1);
      }
    }
    over.set(true);
    reader.join();
    say(failures.isEmpty() ? "all ok" : "failed: " + failures.get(0));
    System.exit(0);
  }

  /**
   * A client asks no other broker for metadata while it tries to connect to one, and again
   * not for a while after it gave up. Where it begins anew with the same broker before that
   * while is over, it never finds out who leads instead of a broker that can't be reached.
   */
  static void patience(Properties p) {
    p.put("metadata.max.age.ms", "2000");
    p.put("socket.connection.setup.timeout.ms", "1000");
    p.put("socket.connection.setup.timeout.max.ms", "1000");
    p.put("retry.backoff.ms", "50");
    p.put("retry.backoff.max.ms", "100");
    p.put("reconnect.backoff.ms", "200");
    p.put("reconnect.backoff.max.ms", "200");
  }

  static synchronized void say(String line) { System.out.println(line); }

  static void read(String brokers, String topic, AtomicBoolean over) {
    Properties p = new Properties();
    p.put("bootstrap.servers", brokers);
    p.put("auto.offset.reset", "earliest");
    p.put("enable.auto.commit", "false");
    p.put("request.timeout.ms", "2000");
    p.put("default.api.timeout.ms", "120000");
    patience(p);
    try (Consumer<String, String> consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
      List<TopicPartition> all = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1), new TopicPartition(topic, 2));
      consumer.assign(all);
      consumer.seekToBeginning(all);
      while (!over.get()) {
        for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(200))) {
          say("read " + r.partition() + " " + r.offset() + " " + r.value());
        }
      }
    }
  }
}
