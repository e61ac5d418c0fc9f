// Lines out: the names of the methods of Kafka's Admin, without the overloads that have the same name.
import java.util.*;
import java.lang.reflect.Method;
import org.apache.kafka.clients.admin.Admin;

public class AdminMethods {
  public static void main(String[] a) {
    var names = new TreeSet<String>();
    for (Method method : Admin.class.getMethods()) names.add(method.getName());
    names.forEach(System.out::println);
  }
}
