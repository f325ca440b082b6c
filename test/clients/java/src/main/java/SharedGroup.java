import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.*;

/**
 * A member of a consumer group that others are in as well: SharedGroup BOOTSTRAP TOPIC GROUP ASSIGNOR RECORDS.
 * It prints "record GENERATION PARTITION OFFSET" for each record that it is given, commits after each poll, and
 * leaves when it has had so many.
 */
public class SharedGroup {
  public static void main(String[] args) throws Exception {
    Properties p = new Properties();
    p.put("bootstrap.servers", args[0]);
    p.put("group.id", args[2]);
    p.put("partition.assignment.strategy", args[3]);
    p.put("auto.offset.reset", "earliest");
    p.put("enable.auto.commit", "false");
    p.put("session.timeout.ms", "6000");
    p.put("heartbeat.interval.ms", "200");
    p.put("max.poll.records", "50");
    int left = Integer.parseInt(args[4]);
    StringBuilder out = new StringBuilder();
    try (KafkaConsumer<byte[], byte[]> c =
        new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      c.subscribe(List.of(args[1]));
      while (left > 0) {
        ConsumerRecords<byte[], byte[]> records = c.poll(Duration.ofMillis(200));
        int generation = c.groupMetadata().generationId();
        for (ConsumerRecord<byte[], byte[]> r : records)
          out.append("record ").append(generation).append(' ').append(r.partition()).append(' ').append(r.offset())
              .append('\n');
        left -= records.count();
        try {
          c.commitSync();
        } catch (CommitFailedException | RebalanceInProgressException e) {
          // Too late: others read from the last commit on.
        }
      }
    }
    System.out.print(out);
    System.out.println("all ok");
  }
}
