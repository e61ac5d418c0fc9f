import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;

/** Prints the options and methods of Java's clients, each with the kind of client. */
public class ClientNames {
    public static void main(String[] arguments) {
        Map<String, Set<String>> options = Map.of(
            "consumer", ConsumerConfig.configNames(),
            "producer", ProducerConfig.configNames(),
            "admin", AdminClientConfig.configNames());
        options.forEach((kind, names) -> names.forEach(name -> System.out.println("option " + kind + " " + name)));
        Map<String, Class<?>> types = Map.of("consumer", Consumer.class, "producer", Producer.class, "admin", Admin.class);
        types.forEach((kind, type) -> {
            for (Method method : type.getMethods()) {
                if (!Modifier.isStatic(method.getModifiers())) {
                    System.out.println("method " + kind + " " + method.getName());
                }
            }
        });
    }
}
