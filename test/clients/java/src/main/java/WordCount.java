import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.*;

/**
 * Counts words with Kafka Streams, exactly once: WordCount BOOTSTRAP STATE-DIR. It reads lines from "lines" and
 * writes each count of each word to "counts", until its input ends. If it fails before that, it prints "failed", and why.
 */
public class WordCount {
  public static void main(String[] args) throws Exception {
    Properties p = new Properties();
    p.put(StreamsConfig.APPLICATION_ID_CONFIG, "words");
    p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
    p.put(StreamsConfig.STATE_DIR_CONFIG, args[1]);
    p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    p.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 3);
    p.put(StreamsConfig.topicPrefix("min.insync.replicas"), "2");
    p.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
    p.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    p.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    // No cache: then every single count of a word is written, and a word that is counted twice, or not, shows.
    p.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
    p.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
    // A member that was killed is missed by its group after this time, not after 45 s.
    p.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");
    p.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "500");

    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream("lines")
        .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split("[^a-z']+")))
        .filter((key, word) -> !word.isEmpty())
        .groupBy((key, word) -> word, Grouped.as("words"))
        .count(Materialized.as("counts"))
        .toStream()
        .to("counts", Produced.with(Serdes.String(), Serdes.Long()));

    KafkaStreams streams = new KafkaStreams(builder.build(), p);
    streams.setUncaughtExceptionHandler(e -> {
      e.printStackTrace();
      say("failed " + e);
      return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
    });
    streams.start();
    while (System.in.read() >= 0) { }
    if (!streams.close(Duration.ofSeconds(40))) say("failed to close");
    System.exit(0);
  }

  static synchronized void say(String line) {
    System.out.println(line);
  }
}
