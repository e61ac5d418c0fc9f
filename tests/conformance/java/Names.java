import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;

/** Prints the names of all options of Java's consumer and producer. */
public class Names {
    public static void main(String[] arguments) {
        ConsumerConfig.configNames().forEach(System.out::println);
        ProducerConfig.configNames().forEach(System.out::println);
    }
}
