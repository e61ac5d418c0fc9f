// Argument: the bootstrap address of a broker with the topic `t`. Lines out: "producer" or "consumer", and the group, name
// and tag names of each metric, separated by tabs. The clients have sent and read one record.
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;

public class Metrics {
  static void print(String client, Map<MetricName, ? extends Metric> metrics) {
    for (MetricName metric : metrics.keySet())
      System.out.println(client + "\t" + metric.group() + "\t" + metric.name() + "\t" + String.join("\t", metric.tags().keySet()));
  }

  public static void main(String[] a) throws Exception {
    var options = new Properties();
    String kind = "org.apache.kafka.common.serialization.ByteArray";
    for (String part : List.of("key", "value")) {
      options.put(part + ".serializer", kind + "Serializer");
      options.put(part + ".deserializer", kind + "Deserializer");
    }
    options.put("bootstrap.servers", a[0]);
    options.put("group.id", "metrics");
    options.put("auto.offset.reset", "earliest");
    try (var producer = new KafkaProducer<byte[], byte[]>(options)) {
      producer.send(new ProducerRecord<>("t", new byte[] {1})).get();
      print("producer", producer.metrics());
    }
    try (var consumer = new KafkaConsumer<byte[], byte[]>(options)) {
      consumer.subscribe(List.of("t"));
      while (consumer.poll(Duration.ofMillis(100)).isEmpty()) {}
      print("consumer", consumer.metrics());
    }
  }
}
