import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.TopicPartition;

/**
 * The sticky assignors of 2.6.2 behind a pipe of JSON lines. One line in:
 *   {"assignor": NAME, "topics": {TOPIC: COUNT}, "members": [{"id", "topics", "userData" (base64), "owned": [[TOPIC, INDEX]]}]}
 * one line out: {ID: [[TOPIC, INDEX], ...]} or {"error": TEXT}, with each member's partitions in Java's order.
 */
public class Assignors26 {
  public static void main(String[] args) throws Exception {
    var json = new ObjectMapper();
    var in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonNode question = json.readTree(line);
      ObjectNode answer = json.createObjectNode();
      try {
        Map<String, Integer> topics = new HashMap<>();
        question.get("topics").fields().forEachRemaining(one -> topics.put(one.getKey(), one.getValue().asInt()));
        Map<String, Subscription> members = new HashMap<>();
        for (JsonNode one : question.get("members")) {
          List<String> wants = new ArrayList<>();
          one.get("topics").forEach(topic -> wants.add(topic.asText()));
          List<TopicPartition> owned = new ArrayList<>();
          one.get("owned").forEach(tp -> owned.add(new TopicPartition(tp.get(0).asText(), tp.get(1).asInt())));
          var data = one.get("userData").isNull() ? null : ByteBuffer.wrap(Base64.getDecoder().decode(one.get("userData").asText()));
          members.put(one.get("id").asText(), new Subscription(wants, data, owned));
        }
        AbstractPartitionAssignor assignor =
            question.get("assignor").asText().equals("sticky") ? new StickyAssignor() : new CooperativeStickyAssignor();
        assignor.assign(topics, members).forEach((id, part) -> {
          ArrayNode list = answer.putArray(id);
          part.forEach(tp -> list.addArray().add(tp.topic()).add(tp.partition()));
        });
      } catch (RuntimeException e) {
        answer.put("error", e.toString());
      }
      System.out.println(answer);
    }
  }
}
