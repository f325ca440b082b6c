import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions as the Java client makes them. */
public class TransactionsCheck {
  static String bootstrap;
  static Admin admin;

  public static void main(String[] args) throws Exception {
    bootstrap = args[0];
    Properties p = new Properties();
    p.put("bootstrap.servers", bootstrap);
    try (Admin a = Admin.create(p)) {
      admin = a;
      for (String topic : List.of("tx", "tx-in", "tx-out", "tx-late", "tx-admin"))
        a.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get(20, TimeUnit.SECONDS);
      step("commit and abort", TransactionsCheck::commitAndAbort);
      step("zombie", TransactionsCheck::zombie);
      step("offsets", TransactionsCheck::offsets);
      step("timeout", TransactionsCheck::timeout);
      step("admin", TransactionsCheck::adminView);
    }
    System.out.println("all ok");
  }

  interface Step {
    void run() throws Exception;
  }

  static void step(String name, Step s) throws Exception {
    long t = System.currentTimeMillis();
    s.run();
    System.out.println(name + " ok, " + (System.currentTimeMillis() - t) + " ms");
  }

  static void expect(boolean ok, String what) {
    if (!ok) throw new AssertionError(what);
  }

  static KafkaProducer<String, String> producer(String id, Map<String, String> more) {
    Properties p = new Properties();
    p.put("bootstrap.servers", bootstrap);
    p.put("transactional.id", id);
    p.put("max.block.ms", "20000");
    p.putAll(more);
    return new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
  }

  static KafkaConsumer<String, String> consumer(String group) {
    Properties p = new Properties();
    p.put("bootstrap.servers", bootstrap);
    p.put("isolation.level", "read_committed");
    p.put("auto.offset.reset", "earliest");
    p.put("enable.auto.commit", "false");
    if (group != null) p.put("group.id", group);
    return new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
  }

  /** Reads a topic to its last stable offset. */
  static List<String> committed(String topic) {
    var partitions = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
    List<String> all = new ArrayList<>();
    try (var c = consumer(null)) {
      c.assign(partitions);
      c.seekToBeginning(partitions);
      var ends = c.endOffsets(partitions);
      long until = System.currentTimeMillis() + 20000;
      while (partitions.stream().anyMatch(tp -> c.position(tp) < ends.get(tp))) {
        expect(System.currentTimeMillis() < until, topic + " is not read to its end");
        for (var r : c.poll(Duration.ofMillis(200))) all.add(r.value());
      }
    }
    all.sort(null);
    return all;
  }

  static void commitAndAbort() throws Exception {
    List<String> want = new ArrayList<>();
    try (var p = producer("j-tx", Map.of())) {
      p.initTransactions();
      for (int i = 0; i < 30; i++) {
        p.beginTransaction();
        for (int k = 0; k < 5; k++) p.send(new ProducerRecord<>("tx", k % 2, null, i + "-" + k));
        if (i % 3 == 2) {
          p.abortTransaction();
          continue;
        }
        p.commitTransaction();
        for (int k = 0; k < 5; k++) want.add(i + "-" + k);
      }
    }
    want.sort(null);
    expect(committed("tx").equals(want), "what is committed is read, and nothing else");
  }

  static void zombie() throws Exception {
    var before = committed("tx");
    var old = producer("j-tx", Map.of());
    old.initTransactions();
    old.beginTransaction();
    old.send(new ProducerRecord<>("tx", 0, null, "zombie")).get(20, TimeUnit.SECONDS);
    try (var next = producer("j-tx", Map.of())) {
      next.initTransactions();
      next.beginTransaction();
      next.send(new ProducerRecord<>("tx", 0, null, "zz-next"));
      next.commitTransaction();
      try {
        old.commitTransaction();
        throw new AssertionError("a producer that was replaced has committed");
      } catch (KafkaException fenced) {
        System.out.println("  fenced: " + fenced);
      }
      next.beginTransaction();
      next.send(new ProducerRecord<>("tx", 1, null, "zz-next-2"));
      next.commitTransaction();
    }
    old.close(Duration.ofSeconds(1));
    before.addAll(List.of("zz-next", "zz-next-2"));
    expect(committed("tx").equals(before), "the zombie's records are not read");
  }

  static void offsets() throws Exception {
    List<String> want = new ArrayList<>();
    try (var p = producer("j-feed", Map.of())) {
      p.initTransactions();
      p.beginTransaction();
      for (int i = 0; i < 200; i++) {
        p.send(new ProducerRecord<>("tx-in", i % 2, null, "v" + i));
        want.add("v" + i + "!");
      }
      p.commitTransaction();
    }
    want.sort(null);
    int rounds = 0, done = 0;
    while (done < 200) {
      expect(rounds++ < 60, "the transformation comes to an end");
      try (var p = producer("j-transform", Map.of()); var c = consumer("j-g")) {
        p.initTransactions();
        c.subscribe(List.of("tx-in"));
        for (int polls = 0; polls < 8 && done < 200; polls++) {
          var records = c.poll(Duration.ofMillis(500));
          if (records.isEmpty()) continue;
          p.beginTransaction();
          Map<TopicPartition, OffsetAndMetadata> at = new HashMap<>();
          int n = 0;
          for (ConsumerRecord<String, String> r : records) {
            if (n++ >= 40) break;
            p.send(new ProducerRecord<>("tx-out", r.partition(), null, r.value() + "!"));
            at.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
          }
          p.sendOffsetsToTransaction(at, c.groupMetadata());
          if (rounds % 2 == 1) {
            p.abortTransaction();
            break; // And start anew from the committed offsets.
          }
          p.commitTransaction();
          done += Math.min(n, 40);
          for (var tp : at.keySet()) c.seek(tp, at.get(tp));
          for (var tp : c.assignment())
            if (!at.containsKey(tp)) {
              var o = c.committed(Set.of(tp)).get(tp);
              c.seek(tp, o == null ? 0 : o.offset());
            }
        }
      }
    }
    expect(committed("tx-out").equals(want), "each record is transformed exactly once: " + committed("tx-out").size());
  }

  static void timeout() throws Exception {
    var p = producer("j-late", Map.of("transaction.timeout.ms", "1000"));
    p.initTransactions();
    p.beginTransaction();
    p.send(new ProducerRecord<>("tx-late", 0, null, "late")).get(20, TimeUnit.SECONDS);
    Thread.sleep(2500);
    try {
      p.commitTransaction();
      throw new AssertionError("a transaction whose time was up has committed");
    } catch (KafkaException expected) {
      System.out.println("  timed out: " + expected);
    }
    p.close(Duration.ofSeconds(1));
    expect(committed("tx-late").isEmpty(), "the records of the aborted transaction are not read");
  }

  static void adminView() throws Exception {
    var p = producer("j-admin", Map.of());
    p.initTransactions();
    p.beginTransaction();
    p.send(new ProducerRecord<>("tx-admin", 1, null, "v")).get(20, TimeUnit.SECONDS);
    var listed = admin.listTransactions(new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING))).all().get();
    expect(listed.stream().anyMatch(t -> t.transactionalId().equals("j-admin")), "listed: " + listed);
    var described = admin.describeTransactions(List.of("j-admin")).description("j-admin").get();
    expect(described.state() == TransactionState.ONGOING, "described: " + described);
    expect(described.topicPartitions().equals(Set.of(new TopicPartition("tx-admin", 1))), "described: " + described);
    var tp = new TopicPartition("tx-admin", 1);
    var producers = admin.describeProducers(List.of(tp)).partitionResult(tp).get().activeProducers();
    expect(producers.stream().anyMatch(s -> s.producerId() == described.producerId()
        && s.currentTransactionStartOffset().isPresent()), "producers: " + producers);
    admin.fenceProducers(List.of("j-admin")).all().get(20, TimeUnit.SECONDS);
    try {
      p.commitTransaction();
      throw new AssertionError("a fenced producer has committed");
    } catch (KafkaException expected) {
      System.out.println("  fenced: " + expected);
    }
    p.close(Duration.ofSeconds(1));
    expect(committed("tx-admin").isEmpty(), "the records of the fenced producer are not read");
  }
}
