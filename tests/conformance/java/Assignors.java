import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.common.*;

/**
 * Kafka's own assignors behind a pipe of JSON lines. One line in:
 *   {"assignor": NAME, "topics": {TOPIC: [[RACK, ...] for each partition]}, "members": [
 *     {"id", "instance", "topics", "userData" (base64), "owned": [[TOPIC, INDEX]], "generation", "rack"}]}
 * one line out:
 *   {"plan": {ID: [[TOPIC, INDEX], ...]}} or {"error": TEXT}
 */
public class Assignors {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("plan", assign(JSON.readTree(line)));
            } catch (RuntimeException e) {
                answer.put("error", e.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    private static ObjectNode assign(JsonNode question) {
        List<Node> nodes = new ArrayList<>();
        Map<String, Node> racks = new HashMap<>();
        Node nowhere = new Node(0, "localhost", 9092);
        nodes.add(nowhere);
        List<PartitionInfo> partitions = new ArrayList<>();
        question.get("topics").properties().forEach(topic -> {
            int index = 0;
            for (JsonNode where : topic.getValue()) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : where)
                    replicas.add(racks.computeIfAbsent(rack.asText(), name -> {
                        Node node = new Node(nodes.size(), "localhost", 9092, name);
                        nodes.add(node);
                        return node;
                    }));
                if (replicas.isEmpty())
                    replicas.add(nowhere);
                Node[] all = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(topic.getKey(), index++, all[0], all, all));
            }
        });
        Cluster cluster = new Cluster("id", nodes, partitions, Set.of(), Set.of());
        Map<String, Subscription> members = new LinkedHashMap<>();
        for (JsonNode member : question.get("members"))
            members.put(member.get("id").asText(), subscription(member));
        GroupAssignment given = assignor(question.get("assignor").asText()).assign(cluster, new GroupSubscription(members));
        ObjectNode plan = JSON.createObjectNode();
        given.groupAssignment().forEach((id, assignment) -> {
            ArrayNode list = plan.putArray(id);
            assignment.partitions().forEach(tp -> list.addArray().add(tp.topic()).add(tp.partition()));
        });
        return plan;
    }

    private static Subscription subscription(JsonNode member) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        List<TopicPartition> owned = new ArrayList<>();
        member.get("owned").forEach(tp -> owned.add(new TopicPartition(tp.get(0).asText(), tp.get(1).asInt())));
        ByteBuffer userData = null;
        if (!member.get("userData").isNull())
            userData = ByteBuffer.wrap(Base64.getDecoder().decode(member.get("userData").asText()));
        int generation = member.get("generation").isNull() ? -1 : member.get("generation").asInt();
        Optional<String> rack = Optional.ofNullable(member.get("rack").isNull() ? null : member.get("rack").asText());
        Subscription subscription = new Subscription(topics, userData, owned, generation, rack);
        if (!member.get("instance").isNull())
            subscription.setGroupInstanceId(Optional.of(member.get("instance").asText()));
        return subscription;
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }
}
