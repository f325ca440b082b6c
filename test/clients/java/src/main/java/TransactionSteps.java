import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A transactional producer that is told each step: TransactionSteps BOOTSTRAP ID TOPIC TIMEOUT-MS. It reads
 * "init", "begin", "send PARTITION VALUE", "offsets PARTITION OFFSET GROUP", "commit" and "abort", and answers
 * each with "ok" or with the error.
 */
public class TransactionSteps {
  public static void main(String[] args) throws Exception {
    Properties p = new Properties();
    p.put("bootstrap.servers", args[0]);
    p.put("transactional.id", args[1]);
    p.put("transaction.timeout.ms", args[3]);
    String topic = args[2];
    KafkaProducer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = in.readLine()) != null; ) {
      String[] w = line.split(" ");
      try {
        switch (w[0]) {
          case "init" -> producer.initTransactions();
          case "begin" -> producer.beginTransaction();
          case "send" -> producer.send(new ProducerRecord<>(topic, Integer.parseInt(w[1]), null, w[2])).get();
          case "offsets" -> producer.sendOffsetsToTransaction(
              Map.of(new TopicPartition(topic, Integer.parseInt(w[1])), new OffsetAndMetadata(Long.parseLong(w[2]))),
              new ConsumerGroupMetadata(w[3]));
          case "commit" -> producer.commitTransaction();
          case "abort" -> producer.abortTransaction();
          default -> throw new IllegalArgumentException(line);
        }
        System.out.println("ok");
      } catch (Exception e) {
        System.out.println(e.toString().replace('\n', ' '));
      }
    }
    producer.close(Duration.ofSeconds(1));
    System.exit(0);
  }
}
