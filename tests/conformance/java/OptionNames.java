import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;

/** Prints the kind of client and the name of each option of Java's clients. */
public class OptionNames {
    public static void main(String[] arguments) {
        Map<String, Set<String>> kinds = Map.of(
            "consumer", ConsumerConfig.configNames(),
            "producer", ProducerConfig.configNames(),
            "admin", AdminClientConfig.configNames());
        kinds.forEach((kind, names) -> names.forEach(name -> System.out.println(kind + " " + name)));
    }
}
