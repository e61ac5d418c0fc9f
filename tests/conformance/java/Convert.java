// Kafka 3.9's conversions of record sets behind a pipe: one JSON object per line in, one per line out.
//
//   {"hex": "...", "magic": 0, "fromOffset": 0}       ->  {"hex": "..."}    down-convert for a fetch
//   {"hex": "...", "magic": 2, "firstOffset": 0}      ->  {"hex": "..."}    up-convert produced records for the log
//
// If Kafka rejects the input, the answer is {"error": "text"}.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

public class Convert {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode question = JSON.readTree(line);
                MemoryRecords converted = question.has("firstOffset") ? up(question) : down(question);
                answer.put("hex", HexFormat.of().formatHex(Utils.toArray(converted.buffer())));
            } catch (Throwable problem) {
                answer.put("error", problem.toString());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
    }

    static MemoryRecords records(JsonNode question) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(question.get("hex").asText())));
    }

    static MemoryRecords down(JsonNode question) {
        byte magic = (byte) question.get("magic").asInt();
        return records(question).downConvert(magic, question.get("fromOffset").asLong(), Time.SYSTEM).records();
    }

    static MemoryRecords up(JsonNode question) {
        MemoryRecords records = records(question);
        RecordBatch first = records.batches().iterator().next();
        LogValidator validator = new LogValidator(records, new TopicPartition("t", 0), Time.SYSTEM,
                first.compressionType(), Compression.of(first.compressionType()).build(), false,
                (byte) question.get("magic").asInt(), TimestampType.CREATE_TIME, Long.MAX_VALUE, Long.MAX_VALUE,
                RecordBatch.NO_PARTITION_LEADER_EPOCH, AppendOrigin.CLIENT, MetadataVersion.latestTesting());
        PrimitiveRef.LongRef next = PrimitiveRef.ofLong(question.get("firstOffset").asLong());
        return validator.validateMessagesAndAssignOffsets(next, new Uncounted(), BufferSupplier.NO_CACHING)
                .validatedRecords;
    }

    static class Uncounted implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() { }

        public void recordInvalidOffset() { }

        public void recordInvalidSequence() { }

        public void recordInvalidChecksums() { }

        public void recordNoKeyCompactedTopic() { }
    }
}
