// Java's transactional producer and its read_committed consumer: BOOTSTRAP TOPIC IN.
// Prints each value that the consumer read, and whether a fenced producer could commit.

import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

public class Transactions {
    static String bootstrap;

    static KafkaProducer<String, String> producer(String name) {
        Map<String, Object> options = Map.of(
                "bootstrap.servers", bootstrap, "transactional.id", name, "max.block.ms", "60000");
        return new KafkaProducer<>(options, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String group) {
        Map<String, Object> options = Map.of(
                "bootstrap.servers", bootstrap, "group.id", group, "auto.offset.reset", "earliest",
                "isolation.level", "read_committed", "enable.auto.commit", "false");
        return new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer());
    }

    public static void main(String[] given) throws Exception {
        bootstrap = given[0];
        String topic = given[1], in = given[2];
        KafkaProducer<String, String> one = producer("java");
        one.initTransactions();
        for (int number = 0; number < 6; number++) {
            one.beginTransaction();
            for (int partition = 0; partition < 2; partition++)
                one.send(new ProducerRecord<>(topic, partition, null, number + "-" + partition));
            one.flush();
            if (number % 2 == 0) one.commitTransaction();
            else one.abortTransaction();
        }
        try (KafkaConsumer<String, String> reader = consumer("java-enrich")) {
            reader.subscribe(List.of(in));
            ConsumerRecords<String, String> records = ConsumerRecords.empty();
            while (records.isEmpty()) records = reader.poll(Duration.ofSeconds(1));
            one.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> read = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                one.send(new ProducerRecord<>(topic, 0, null, record.value() + "!"));
                read.put(new TopicPartition(in, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            one.sendOffsetsToTransaction(read, reader.groupMetadata());
            one.commitTransaction();
        }
        one.beginTransaction();
        one.send(new ProducerRecord<>(topic, 0, null, "zombie")).get();
        KafkaProducer<String, String> two = producer("java");
        two.initTransactions();
        two.beginTransaction();
        two.send(new ProducerRecord<>(topic, 0, null, "two"));
        two.commitTransaction();
        try {
            one.commitTransaction();
            System.out.println("zombie committed");
        } catch (Exception error) {
            System.out.println("zombie " + error.getClass().getSimpleName());
        }
        one.close(Duration.ofSeconds(1));
        two.close();
        try (KafkaConsumer<String, String> reader = consumer("java-look")) {
            List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
            reader.assign(partitions);
            reader.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = reader.endOffsets(partitions);
            while (partitions.stream().anyMatch(one_ -> reader.position(one_) < ends.get(one_)))
                for (ConsumerRecord<String, String> record : reader.poll(Duration.ofMillis(200)))
                    System.out.println("saw " + record.value());
        }
    }
}
