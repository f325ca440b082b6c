import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

/**
 * Exercises the Java clients against a broker: ClientsCheck BOOTSTRAP. Each check prints "ok NAME";
 * the first that fails ends the run with a stack trace and a non-zero exit.
 */
public class ClientsCheck {
  static String bootstrap;
  static Admin admin;

  interface Check {
    void run() throws Exception;
  }

  public static void main(String[] args) throws Exception {
    bootstrap = args[0];
    Properties p = new Properties();
    p.put("bootstrap.servers", bootstrap);
    p.put("request.timeout.ms", "15000");
    p.put("default.api.timeout.ms", "20000");
    admin = Admin.create(p);
    try {
      check("admin-topics", ClientsCheck::adminTopics);
      check("admin-configs", ClientsCheck::adminConfigs);
      check("admin-partitions", ClientsCheck::adminPartitions);
      check("admin-cluster", ClientsCheck::adminCluster);
      check("admin-refusals", ClientsCheck::adminRefusals);
      for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd"))
        check("produce-consume-" + codec, () -> produceConsume(codec));
      check("acks", ClientsCheck::acks);
      check("offsets-and-seek", ClientsCheck::offsetsAndSeek);
      check("delete-records", ClientsCheck::deleteRecords);
      check("group-eager", () -> groupRebalance("org.apache.kafka.clients.consumer.RangeAssignor"));
      check("group-cooperative",
          () -> groupRebalance("org.apache.kafka.clients.consumer.CooperativeStickyAssignor"));
      check("group-static-member", ClientsCheck::groupStaticMember);
      check("group-admin", ClientsCheck::groupAdmin);
      check("message-too-large", ClientsCheck::messageTooLarge);
    } finally {
      admin.close(Duration.ofSeconds(5));
    }
    System.out.println("all ok");
  }

  static void check(String name, Check c) throws Exception {
    long t = System.nanoTime();
    c.run();
    System.out.printf("ok %s (%d ms)%n", name, (System.nanoTime() - t) / 1_000_000);
  }

  static void expect(boolean ok, String what) {
    if (!ok) throw new AssertionError(what);
  }

  static <T> T get(KafkaFuture<T> f) throws Exception {
    return f.get(20, TimeUnit.SECONDS);
  }

  static Throwable causeOf(Future<?> f) throws Exception {
    try {
      f.get(20, TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      return e.getCause();
    }
    throw new AssertionError("was not refused");
  }

  static void create(String topic, int partitions) throws Exception {
    get(admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all());
  }

  static KafkaProducer<String, String> producer(Map<String, String> extra) {
    Properties p = new Properties();
    p.put("bootstrap.servers", bootstrap);
    p.put("delivery.timeout.ms", "30000");
    p.put("request.timeout.ms", "15000");
    p.putAll(extra);
    return new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
  }

  static KafkaConsumer<String, String> consumer(String group, Map<String, String> extra) {
    Properties p = new Properties();
    p.put("bootstrap.servers", bootstrap);
    if (group != null) p.put("group.id", group);
    p.put("auto.offset.reset", "earliest");
    p.put("enable.auto.commit", "false");
    p.put("session.timeout.ms", "6000");
    p.put("heartbeat.interval.ms", "200");
    p.putAll(extra);
    return new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
  }

  static void adminTopics() throws Exception {
    CreateTopicsResult r = admin.createTopics(
        List.of(new NewTopic("j-topics", 3, (short) 1).configs(Map.of("retention.ms", "3600000"))));
    expect(get(r.numPartitions("j-topics")) == 3, "partition count in the answer");
    expect(get(r.replicationFactor("j-topics")) == 1, "replication factor in the answer");
    expect(get(r.config("j-topics")).get("retention.ms").value().equals("3600000"), "config in the answer");
    var id = get(r.topicId("j-topics"));
    TopicDescription d = get(admin.describeTopics(List.of("j-topics")).allTopicNames()).get("j-topics");
    expect(d.partitions().size() == 3 && d.topicId().equals(id), "description by name");
    var byId = get(admin.describeTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(id))).allTopicIds());
    expect(byId.get(id).name().equals("j-topics"), "description by id");
    expect(get(admin.listTopics().names()).contains("j-topics"), "list");
    get(admin.deleteTopics(List.of("j-topics")).all());
    expect(!get(admin.listTopics().names()).contains("j-topics"), "deleted");
    expect(causeOf(admin.describeTopics(List.of("j-topics")).allTopicNames().toCompletionStage().toCompletableFuture())
        instanceof UnknownTopicOrPartitionException, "describe after delete");
  }

  static void adminConfigs() throws Exception {
    create("j-configs", 1);
    ConfigResource res = new ConfigResource(ConfigResource.Type.TOPIC, "j-configs");
    Config c = get(admin.describeConfigs(List.of(res)).all()).get(res);
    expect(c.get("retention.ms").value().equals("604800000"), "seven days unless set");
    expect(c.get("retention.ms").isDefault(), "default source");
    get(admin.incrementalAlterConfigs(Map.of(res, List.of(
        new AlterConfigOp(new ConfigEntry("retention.ms", "1000"), AlterConfigOp.OpType.SET),
        new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND)))).all());
    c = get(admin.describeConfigs(List.of(res)).all()).get(res);
    expect(c.get("retention.ms").value().equals("1000"), "altered");
    expect(c.get("cleanup.policy").value().contains("compact"), "appended");
    expect(c.get("retention.ms").source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, "source");
    get(admin.incrementalAlterConfigs(Map.of(res, List.of(
        new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE)))).all());
    c = get(admin.describeConfigs(List.of(res)).all()).get(res);
    expect(c.get("retention.ms").value().equals("604800000"), "back to the default");
    ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER,
        get(admin.describeCluster().controller()).idString());
    expect(!get(admin.describeConfigs(List.of(broker)).all()).get(broker).entries().isEmpty(), "broker configs");
  }

  static void adminPartitions() throws Exception {
    create("j-grow", 2);
    get(admin.createPartitions(Map.of("j-grow", NewPartitions.increaseTo(5))).all());
    expect(get(admin.describeTopics(List.of("j-grow")).allTopicNames()).get("j-grow").partitions().size() == 5, "grown");
    Throwable t = causeOf(admin.createPartitions(Map.of("j-grow", NewPartitions.increaseTo(4))).all()
        .toCompletionStage().toCompletableFuture());
    expect(t instanceof InvalidPartitionsException && t.getMessage().contains("5"), "shrink says why: " + t);
  }

  static void adminCluster() throws Exception {
    DescribeClusterResult r = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
    expect(get(r.nodes()).size() == 1, "one node");
    expect(get(r.clusterId()).length() == 22, "cluster id");
    int node = get(r.controller()).id();
    create("j-dirs", 1);
    var dirs = get(admin.describeLogDirs(List.of(node)).allDescriptions()).get(node);
    expect(dirs.values().iterator().next().replicaInfos().containsKey(new TopicPartition("j-dirs", 0)), "log dirs");
  }

  static void adminRefusals() throws Exception {
    Throwable t = causeOf(admin.createTopics(List.of(new NewTopic("bad name!", 1, (short) 1))).all()
        .toCompletionStage().toCompletableFuture());
    expect(t instanceof InvalidTopicException && t.getMessage().length() > 20, "topic name: " + t);
    t = causeOf(admin.createTopics(List.of(new NewTopic("j-rf", 1, (short) 3))).all()
        .toCompletionStage().toCompletableFuture());
    expect(t instanceof InvalidReplicationFactorException, "replication factor: " + t);
    t = causeOf(admin.createTopics(List.of(new NewTopic("j-cfg", 1, (short) 1).configs(Map.of("retention.ms", "soon")))).all()
        .toCompletionStage().toCompletableFuture());
    expect(t instanceof InvalidConfigurationException && t.getMessage().contains("retention.ms"), "config: " + t);
    t = causeOf(admin.createTopics(List.of(new NewTopic("j-zero", 0, (short) 1))).all()
        .toCompletionStage().toCompletableFuture());
    expect(t instanceof InvalidPartitionsException, "partitions: " + t);
    create("j-twice", 1);
    t = causeOf(admin.createTopics(List.of(new NewTopic("j-twice", 1, (short) 1))).all()
        .toCompletionStage().toCompletableFuture());
    expect(t instanceof TopicExistsException, "exists: " + t);
  }

  static void produceConsume(String codec) throws Exception {
    String topic = "j-pc-" + codec;
    create(topic, 3);
    int n = 5000;
    Map<Integer, Long> last = new HashMap<>();
    try (var p = producer(Map.of("compression.type", codec, "linger.ms", "5"))) {
      List<Future<RecordMetadata>> fs = new ArrayList<>();
      for (int i = 0; i < n; i++) {
        var rec = new ProducerRecord<>(topic, "k" + i % 97, "v" + i + "-" + "x".repeat(i % 300));
        rec.headers().add(new RecordHeader("h", new byte[] {(byte) i}));
        fs.add(p.send(rec));
      }
      p.flush();
      for (var f : fs) {
        RecordMetadata m = f.get();
        Long before = last.put(m.partition(), m.offset());
        expect(before == null || m.offset() > before, "offsets rise in send order");
      }
    }
    long total = last.values().stream().mapToLong(o -> o + 1).sum();
    expect(total == n, "offsets are dense: " + total);
    Map<String, Integer> seen = new HashMap<>();
    try (var c = consumer("g-" + topic, Map.of())) {
      c.subscribe(List.of(topic));
      int got = 0;
      long end = System.currentTimeMillis() + 30000;
      while (got < n && System.currentTimeMillis() < end) {
        for (var r : c.poll(Duration.ofMillis(500))) {
          got++;
          int i = Integer.parseInt(r.value().substring(1, r.value().indexOf('-')));
          expect(r.value().equals("v" + i + "-" + "x".repeat(i % 300)), "value");
          expect(r.headers().lastHeader("h").value()[0] == (byte) i, "header");
          Integer before = seen.put(r.key(), i);
          expect(before == null || before < i, "per-key order");
        }
      }
      expect(got == n, "consumed " + got);
      c.commitSync();
      for (var tp : c.assignment())
        expect(c.committed(Set.of(tp)).get(tp).offset() == c.position(tp), "committed");
    }
  }

  static void acks() throws Exception {
    create("j-acks", 1);
    for (String acks : List.of("0", "1", "all")) {
      try (var p = producer(Map.of("acks", acks, "enable.idempotence", String.valueOf(acks.equals("all"))))) {
        for (int i = 0; i < 100; i++) p.send(new ProducerRecord<>("j-acks", acks, "v" + i));
        p.flush();
        p.send(new ProducerRecord<>("j-acks", acks, "last")).get(10, TimeUnit.SECONDS);
      }
    }
    TopicPartition tp = new TopicPartition("j-acks", 0);
    long end = System.currentTimeMillis() + 5000;
    long latest = 0;
    while (latest < 303 && System.currentTimeMillis() < end)
      latest = get(admin.listOffsets(Map.of(tp, OffsetSpec.latest())).all()).get(tp).offset();
    expect(latest == 303, "latest offset " + latest);
  }

  static void offsetsAndSeek() throws Exception {
    create("j-seek", 1);
    TopicPartition tp = new TopicPartition("j-seek", 0);
    long t0 = System.currentTimeMillis() - 100_000;
    try (var p = producer(Map.of("linger.ms", "0"))) {
      for (int i = 0; i < 100; i++)
        p.send(new ProducerRecord<>("j-seek", 0, t0 + i * 1000L, "k", "v" + i)).get();
    }
    expect(get(admin.listOffsets(Map.of(tp, OffsetSpec.forTimestamp(t0 + 49_500))).all()).get(tp).offset() == 50, "by time");
    expect(get(admin.listOffsets(Map.of(tp, OffsetSpec.maxTimestamp())).all()).get(tp).offset() == 99, "max timestamp");
    expect(get(admin.listOffsets(Map.of(tp, OffsetSpec.earliest())).all()).get(tp).offset() == 0, "earliest");
    try (var c = consumer(null, Map.of())) {
      c.assign(List.of(tp));
      expect(c.endOffsets(List.of(tp)).get(tp) == 100, "end offset");
      expect(c.beginningOffsets(List.of(tp)).get(tp) == 0, "beginning offset");
      expect(c.offsetsForTimes(Map.of(tp, t0 + 10_000)).get(tp).offset() == 10, "offsetsForTimes");
      c.seek(tp, 42);
      expect(first(c).value().equals("v42"), "seek forward");
      c.seekToBeginning(List.of(tp));
      expect(first(c).value().equals("v0"), "replay");
      c.seek(tp, 5000);
      expect(first(c).offset() == 0, "out of range resets to earliest");
    }
  }

  static ConsumerRecord<String, String> first(KafkaConsumer<String, String> c) {
    long end = System.currentTimeMillis() + 15000;
    while (System.currentTimeMillis() < end) {
      var rs = c.poll(Duration.ofMillis(500));
      if (!rs.isEmpty()) return rs.iterator().next();
    }
    throw new AssertionError("no record came");
  }

  static void deleteRecords() throws Exception {
    create("j-del", 1);
    TopicPartition tp = new TopicPartition("j-del", 0);
    try (var p = producer(Map.of())) {
      for (int i = 0; i < 50; i++) p.send(new ProducerRecord<>("j-del", "v" + i)).get();
    }
    long low = get(admin.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(20))).lowWatermarks().get(tp)).lowWatermark();
    expect(low == 20, "low watermark " + low);
    expect(get(admin.listOffsets(Map.of(tp, OffsetSpec.earliest())).all()).get(tp).offset() == 20, "earliest moved");
    try (var c = consumer(null, Map.of())) {
      c.assign(List.of(tp));
      c.seekToBeginning(List.of(tp));
      expect(first(c).offset() == 20, "reads from the new start");
    }
  }

  /** One member takes all; a second takes its share; each record reaches exactly one owner's poll. */
  static void groupRebalance(String assignor) throws Exception {
    String name = assignor.substring(assignor.lastIndexOf('.') + 1);
    String topic = "j-rb-" + name;
    create(topic, 6);
    Map<String, String> opts = Map.of("partition.assignment.strategy", assignor);
    try (var a = consumer("g-" + name, opts); var b = consumer("g-" + name, opts)) {
      Set<TopicPartition> revoked = new HashSet<>();
      a.subscribe(List.of(topic), new ConsumerRebalanceListener() {
        public void onPartitionsRevoked(Collection<TopicPartition> ps) { revoked.addAll(ps); }
        public void onPartitionsAssigned(Collection<TopicPartition> ps) {}
      });
      until(() -> { a.poll(Duration.ofMillis(100)); return a.assignment().size() == 6; }, "first member has all");
      b.subscribe(List.of(topic));
      until(() -> {
        a.poll(Duration.ofMillis(50));
        b.poll(Duration.ofMillis(50));
        Set<TopicPartition> both = new HashSet<>(a.assignment());
        both.addAll(b.assignment());
        return a.assignment().size() == 3 && b.assignment().size() == 3 && both.size() == 6;
      }, "two members share");
      if (name.startsWith("Cooperative")) expect(revoked.size() == 3, "only what moves is revoked: " + revoked);
      b.unsubscribe();
      until(() -> { a.poll(Duration.ofMillis(50)); return a.assignment().size() == 6; }, "all come back");
    }
  }

  interface Condition {
    boolean holds();
  }

  static void until(Condition c, String what) {
    long end = System.currentTimeMillis() + 30000;
    while (System.currentTimeMillis() < end) if (c.holds()) return;
    throw new AssertionError("never: " + what);
  }

  /** A static member that comes back within its session keeps its partitions without a rebalance. */
  static void groupStaticMember() throws Exception {
    create("j-static", 4);
    Map<String, String> one = Map.of("group.instance.id", "one");
    Map<String, String> two = Map.of("group.instance.id", "two");
    Set<TopicPartition> before;
    try (var b = consumer("g-static", two)) {
      b.subscribe(List.of("j-static"));
      try (var a = consumer("g-static", one)) {
        a.subscribe(List.of("j-static"));
        until(() -> {
          a.poll(Duration.ofMillis(50));
          b.poll(Duration.ofMillis(50));
          return a.assignment().size() == 2 && b.assignment().size() == 2;
        }, "two static members share");
        before = new HashSet<>(a.assignment());
      }
      int generation = b.groupMetadata().generationId();
      try (var a = consumer("g-static", one)) {
        a.subscribe(List.of("j-static"));
        until(() -> {
          a.poll(Duration.ofMillis(50));
          b.poll(Duration.ofMillis(50));
          return a.assignment().size() == 2;
        }, "the member comes back");
        expect(a.assignment().equals(before), "same partitions");
        expect(b.groupMetadata().generationId() == generation, "no rebalance");
      }
    }
  }

  static void groupAdmin() throws Exception {
    create("j-ga", 2);
    TopicPartition tp = new TopicPartition("j-ga", 0);
    try (var c = consumer("g-admin", Map.of())) {
      c.subscribe(List.of("j-ga"));
      until(() -> { c.poll(Duration.ofMillis(100)); return c.assignment().size() == 2; }, "assigned");
      c.commitSync(Map.of(tp, new OffsetAndMetadata(7, "note")));
      ConsumerGroupDescription d = get(admin.describeConsumerGroups(List.of("g-admin")).all()).get("g-admin");
      expect(d.members().size() == 1, "one member");
      expect(d.members().iterator().next().assignment().topicPartitions().size() == 2, "assignment shown");
      expect(get(admin.listGroups().all()).stream().anyMatch(g -> g.groupId().equals("g-admin")), "listed");
      var offs = get(admin.listConsumerGroupOffsets("g-admin").partitionsToOffsetAndMetadata());
      expect(offs.get(tp).offset() == 7 && offs.get(tp).metadata().equals("note"), "offsets listed");
      Throwable t = causeOf(admin.deleteConsumerGroups(List.of("g-admin")).all().toCompletionStage().toCompletableFuture());
      expect(t instanceof GroupNotEmptyException, "not empty: " + t);
      t = causeOf(admin.deleteConsumerGroupOffsets("g-admin", Set.of(tp)).all().toCompletionStage().toCompletableFuture());
      expect(t instanceof GroupSubscribedToTopicException, "subscribed: " + t);
    }
    get(admin.alterConsumerGroupOffsets("g-admin", Map.of(tp, new OffsetAndMetadata(3))).all());
    expect(get(admin.listConsumerGroupOffsets("g-admin").partitionsToOffsetAndMetadata()).get(tp).offset() == 3, "reset");
    get(admin.deleteConsumerGroupOffsets("g-admin", Set.of(tp)).all());
    get(admin.deleteConsumerGroups(List.of("g-admin")).all());
    expect(get(admin.listGroups().all()).stream().noneMatch(g -> g.groupId().equals("g-admin")), "gone");
  }

  static void messageTooLarge() throws Exception {
    get(admin.createTopics(List.of(new NewTopic("j-big", 1, (short) 1).configs(Map.of("max.message.bytes", "2000")))).all());
    try (var p = producer(Map.of())) {
      Throwable t = causeOf(p.send(new ProducerRecord<>("j-big", "x".repeat(5000))));
      expect(t instanceof RecordTooLargeException, "too large: " + t);
      p.send(new ProducerRecord<>("j-big", "small")).get(10, TimeUnit.SECONDS);
    }
  }
}
