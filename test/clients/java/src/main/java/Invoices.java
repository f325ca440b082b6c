import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/** The example of docs/transactions.md, which shows transformOrders as it is here: Invoices BOOTSTRAP. */
public class Invoices {
  public static void main(String[] args) {
    transformOrders(args[0]);
  }

  static void transformOrders(String brokers) {
    Map<String, Object> writing = Map.of(
        "bootstrap.servers", brokers,
        "transactional.id", "invoices-1"); // One for each running instance, the same after a restart.
    Map<String, Object> reading = Map.of(
        "bootstrap.servers", brokers,
        "group.id", "invoices",
        "group.instance.id", "invoices-1", // So that a restart goes on at once, without a rebalance.
        "auto.offset.reset", "earliest",
        "enable.auto.commit", "false",
        "isolation.level", "read_committed");
    try (var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
        var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
      producer.initTransactions();
      consumer.subscribe(List.of("orders"));
      while (true) {
        ConsumerRecords<String, String> orders = consumer.poll(Duration.ofSeconds(1));
        if (orders.isEmpty()) continue;
        try {
          producer.beginTransaction();
          for (var order : orders)
            producer.send(new ProducerRecord<>("invoices", order.key(), "invoice for " + order.value()));
          // Refused if the group has taken the partitions away meanwhile: whoever has them now does it.
          producer.sendOffsetsToTransaction(orders.nextOffsets(), consumer.groupMetadata());
          producer.commitTransaction();
        } catch (KafkaException e) {
          producer.abortTransaction(); // Throws if this instance is fenced, and so ends it.
          // What was read was not handled: it is read again, from where the group is.
          Set<TopicPartition> mine = consumer.assignment();
          consumer.committed(mine).forEach((partition, committed) -> {
            if (committed == null) consumer.seekToBeginning(List.of(partition));
            else consumer.seek(partition, committed);
          });
        }
      }
    }
  }
}
