// Tests what the document of lesson 002 concludes from KafkaConsumer and ConsumerCoordinator:
// java Document2 BOOTSTRAP TOPIC EMPTY
//
// TOPIC has four partitions and EMPTY has one. Each line is "SCENE | RESULT". Compiled against kafka-clients
// 2.6.2 and 4.3.1.
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

public class Document2 {
  static String bootstrap;

  static void say(String scene, Object what) { System.out.println(scene + " | " + what); System.out.flush(); }

  static String text(Throwable e) {
    String cause = e.getCause() != null ? "; caused by " + text(e.getCause()) : "";
    return e.getClass().getSimpleName() + (e.getMessage() != null ? ": " + e.getMessage() : "") + cause;
  }

  static String tried(Callable<?> f) { try { return String.valueOf(f.call()); } catch (Throwable e) { return text(e); } }

  static KafkaConsumer<byte[], byte[]> consumer(Object... more) {
    Map<String, Object> m = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest",
        "heartbeat.interval.ms", 300, "key.deserializer", ByteArrayDeserializer.class, "value.deserializer", ByteArrayDeserializer.class));
    for (int i = 0; i < more.length; i += 2) m.put((String) more[i], more[i + 1]);
    return new KafkaConsumer<>(m);
  }

  static void owned(KafkaConsumer<byte[], byte[]> c) {
    long end = System.currentTimeMillis() + 30_000;
    while (c.assignment().isEmpty() && System.currentTimeMillis() < end) c.poll(Duration.ofMillis(100));
  }

  public static class Buggy extends RangeAssignor {
    static int times;
    public String name() { return "buggy"; }
    public void onAssignment(Assignment a, ConsumerGroupMetadata g) {
      if (times++ == 0) throw new RuntimeException("a bug in the assignor");
    }
  }

  /** Throws one error in the first revocation, and another one in the next assignment. */
  static class Raises implements ConsumerRebalanceListener {
    final RuntimeException first;
    final List<String> calls = new ArrayList<>();
    boolean revoked, assigned;
    Raises(RuntimeException first) { this.first = first; }
    public void onPartitionsRevoked(Collection<TopicPartition> ps) {
      calls.add("revoked " + ps.size());
      if (first != null && !revoked && !ps.isEmpty()) { revoked = true; throw first; }
    }
    public void onPartitionsAssigned(Collection<TopicPartition> ps) {
      calls.add("assigned " + ps.size());
      if (revoked && !assigned && first.getMessage().equals("first")) { assigned = true; throw new RuntimeException("second"); }
    }
  }

  /** A second member joins one whose callbacks throw: print its exceptions, its callbacks, and the final assignments. */
  static void raising(String scene, String topic, RuntimeException first, Class<?> assignor) {
    Object[] options = {"group.id", topic + scene, "partition.assignment.strategy", assignor.getName()};
    var a = consumer(options);
    var listener = new Raises(first);
    a.subscribe(List.of(topic), listener);
    owned(a);
    var b = consumer(options);
    b.subscribe(List.of(topic));
    List<String> threw = new ArrayList<>();
    long end = System.currentTimeMillis() + 30_000;
    while ((b.assignment().size() != 2 || a.assignment().size() != 2
        || a.groupMetadata().generationId() != b.groupMetadata().generationId()) && System.currentTimeMillis() < end) {
      try { a.poll(Duration.ofMillis(50)); } catch (Exception e) { threw.add(text(e)); }
      b.poll(Duration.ofMillis(50));
    }
    // The first member may still wait for the response to its last SyncGroup.
    try { a.poll(Duration.ofMillis(500)); } catch (Exception e) { threw.add(text(e)); }
    say(scene, String.join(" and ", threw));
    say(scene + " callbacks", listener.calls);
    say(scene + " in the end", a.assignment().size() + " " + b.assignment().size());
    b.close();
    a.close();
  }

  /** Drops every second record. */
  public static class Redacts implements ConsumerInterceptor<byte[], byte[]> {
    public ConsumerRecords<byte[], byte[]> onConsume(ConsumerRecords<byte[], byte[]> records) {
      Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> kept = new HashMap<>();
      for (var r : records)
        if (r.offset() % 2 == 0) kept.computeIfAbsent(new TopicPartition(r.topic(), r.partition()), p -> new ArrayList<>()).add(r);
      return new ConsumerRecords<>(kept);
    }
    public void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {}
    public void close() {}
    public void configure(Map<String, ?> configs) {}
  }

  /** Two members with one partition: print the generations in the callbacks of the first, and those of the idle one. */
  static void generations(String topic) {
    Object[] options = {"group.id", topic + "33", "partition.assignment.strategy", RangeAssignor.class.getName()};
    var a = consumer(options);
    var b = consumer(options);
    List<String> told = new ArrayList<>(), idle = new ArrayList<>();
    class Told implements ConsumerRebalanceListener {
      public void onPartitionsRevoked(Collection<TopicPartition> ps) { told.add("revoked:" + a.groupMetadata().generationId()); }
      public void onPartitionsAssigned(Collection<TopicPartition> ps) { told.add("assigned:" + a.groupMetadata().generationId()); }
    }
    class Idle implements ConsumerRebalanceListener {
      public void onPartitionsRevoked(Collection<TopicPartition> ps) { idle.add("revoked " + ps.size()); }
      public void onPartitionsAssigned(Collection<TopicPartition> ps) { idle.add("assigned " + ps.size()); }
    }
    a.subscribe(List.of(topic), new Told());
    owned(a);
    b.subscribe(List.of(topic), new Idle());
    long end = System.currentTimeMillis() + 30_000;
    while ((told.size() < 3 || idle.isEmpty()) && System.currentTimeMillis() < end) {
      a.poll(Duration.ofMillis(50));
      b.poll(Duration.ofMillis(50));
    }
    boolean first = a.assignment().isEmpty(); // Member ids decide which of the two members gets the partition.
    say("S2-33", told);
    say("S2-44", first ? "[assigned 0]" : idle);
    b.close();
    a.close();
  }

  public static void main(String[] args) throws Exception {
    bootstrap = args[0];
    String topic = args[1], empty = args[2];
    say("S2-4", tried(() -> consumer("enable.auto.commit", "true")));
    say("S2-6", tried(() -> consumer("group.id", "g", "auto.commit.interval.ms", -1)));
    say("S2-8", tried(() -> { try (var c = consumer("group.id", "g")) { return c.poll(Duration.ofMillis(10)); } }));
    {
      var c = consumer("group.id", empty + "7");
      c.subscribe(List.of(empty));
      owned(c);
      var other = Executors.newSingleThreadExecutor();
      var polling = other.submit(() -> c.poll(Duration.ofSeconds(2)));
      Thread.sleep(500);
      say("S2-7 second", tried(() -> c.poll(Duration.ZERO)));
      polling.get();
      other.shutdown();
      c.wakeup();
      say("S2-9", tried(() -> c.poll(Duration.ofSeconds(60))));
      say("S2-9 next", tried(() -> c.poll(Duration.ZERO).count()));
      c.close();
      say("S2-7 closed", tried(() -> c.poll(Duration.ZERO)));
    }
    try {
      var poll = KafkaConsumer.class.getMethod("poll", long.class);
      var c = consumer("group.id", empty + "11");
      c.subscribe(List.of(empty));
      long begun = System.currentTimeMillis();
      poll.invoke(c, 900L);
      say("S2-11", System.currentTimeMillis() - begun);
      say("S2-11 assigned", c.assignment().size());
      c.close();
    } catch (NoSuchMethodException e) {
      say("S2-11", "gone");
    }
    raising("S2-30", topic, new RuntimeException("the database is away"), RangeAssignor.class);
    raising("S2-45 RuntimeException", topic, new RuntimeException("first"), CooperativeStickyAssignor.class);
    raising("S2-45 CommitFailedException", topic, new CommitFailedException("first"), CooperativeStickyAssignor.class);
    {
      var c = consumer("group.id", topic + "41", "partition.assignment.strategy", Buggy.class.getName());
      var listener = new Raises(null);
      c.subscribe(List.of(topic), listener);
      List<String> threw = new ArrayList<>();
      long end = System.currentTimeMillis() + 30_000;
      while (listener.calls.size() < 2 && System.currentTimeMillis() < end) {
        try { c.poll(Duration.ofMillis(100)); } catch (Exception e) { threw.add(text(e)); }
      }
      say("S2-41", String.join(" and ", threw));
      say("S2-41 callbacks", listener.calls);
      c.close();
    }
    generations(empty);
    {
      var partition = new TopicPartition(empty, 0);
      var producer = new org.apache.kafka.clients.producer.KafkaProducer<byte[], byte[]>(Map.of("bootstrap.servers", bootstrap,
          "key.serializer", ByteArraySerializer.class, "value.serializer", ByteArraySerializer.class));
      for (int n = 0; n < 10; n++) producer.send(new org.apache.kafka.clients.producer.ProducerRecord<>(empty, 0, null, new byte[1])).get();
      producer.close();
      var c = consumer("group.id", empty + "13", "interceptor.classes", Redacts.class.getName(), "auto.commit.interval.ms", 100);
      c.subscribe(List.of(empty));
      int read = 0;
      long end = System.currentTimeMillis() + 30_000;
      while ((c.committed(Set.of(partition)).get(partition) == null || c.committed(Set.of(partition)).get(partition).offset() < 10)
          && System.currentTimeMillis() < end) read += c.poll(Duration.ofMillis(100)).count();
      say("S2-13", read + " " + c.committed(Set.of(partition)).get(partition).offset());
      c.close();
    }
    Runtime.getRuntime().halt(0);
  }
}
