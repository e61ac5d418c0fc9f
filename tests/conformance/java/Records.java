// Kafka's own reader and builder of record batches behind a pipe: one JSON object per line in, one per line out.
//
//   {"hex": "..."}                                ->  {"valid": true, "batches": [...], "rows": [...]}
//   {"magic": 2, "batches": [...], "rows": [...]}  ->  {"hex": "..."}    batches take the next "count" of the rows
//
// Batches and rows have the form of kproto/inspect/json_lines.py. Corrupt bytes give {"valid": false, "error": "text"}, and
// input that the builder rejects gives {"error": "text"}.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import java.util.Iterator;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Utils;

public class Records {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode question = JSON.readTree(line);
                if (question.has("hex")) {
                    decode(HexFormat.of().parseHex(question.get("hex").asText()), answer);
                } else {
                    answer.put("hex", HexFormat.of().formatHex(encode(question)));
                }
            } catch (Throwable problem) {
                answer = JSON.createObjectNode().put("error", problem.toString());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
    }

    static void decode(byte[] data, ObjectNode answer) {
        ArrayNode batches = answer.putArray("batches");
        ArrayNode rows = answer.putArray("rows");
        try {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
                batch.ensureValid();
                int count = 0;
                for (Record record : batch) {
                    record.ensureValid();
                    row(record, batch.timestampType().name, rows.addObject());
                    count++;
                }
                batch(batch, count, batches.addObject());
            }
            answer.put("valid", true);
        } catch (Exception problem) {
            answer.put("valid", false).put("error", problem.toString());
        }
    }

    static void batch(MutableRecordBatch batch, int count, ObjectNode told) {
        told.put("baseOffset", batch.baseOffset()).put("lastOffset", batch.lastOffset());
        told.put("magic", batch.magic()).put("compression", batch.compressionType().name);
        told.put("timestampType", batch.timestampType().name).put("maxTimestamp", batch.maxTimestamp());
        told.put("producerId", batch.producerId()).put("producerEpoch", batch.producerEpoch());
        told.put("baseSequence", batch.baseSequence()).put("isTransactional", batch.isTransactional());
        told.put("isControl", batch.isControlBatch());
        told.put("partitionLeaderEpoch", batch.partitionLeaderEpoch()).put("count", count);
        if (batch.deleteHorizonMs().isPresent()) {
            told.put("deleteHorizonMs", batch.deleteHorizonMs().getAsLong());
        } else {
            told.putNull("deleteHorizonMs");
        }
    }

    static void row(Record record, String timestampType, ObjectNode told) {
        told.put("offset", record.offset()).put("timestamp", record.timestamp()).put("timestampType", timestampType);
        told.put("key", text(record.key())).put("value", text(record.value()));
        ArrayNode headers = told.putArray("headers");
        for (Header header : record.headers()) {
            byte[] value = header.value();
            headers.addArray().add(header.key()).add(value == null ? null : text(ByteBuffer.wrap(value)));
        }
    }

    static byte[] encode(JsonNode question) {
        byte magic = (byte) question.path("magic").asInt(2);
        ByteBufferOutputStream whole = new ByteBufferOutputStream(1024);
        Iterator<JsonNode> rows = question.get("rows").elements();
        for (JsonNode told : question.get("batches")) {
            whole.write(encode(magic, told, rows));
        }
        return Utils.toArray(whole.buffer().flip());
    }

    static ByteBuffer encode(byte magic, JsonNode told, Iterator<JsonNode> rows) {
        TimestampType type = TimestampType.forName(told.get("timestampType").asText());
        long base = told.get("baseOffset").asLong();
        long last = told.get("lastOffset").asLong();
        long time = told.get("maxTimestamp").asLong();
        long producer = told.get("producerId").asLong();
        short epoch = (short) told.get("producerEpoch").asInt();
        int sequence = told.get("baseSequence").asInt();
        int leader = told.get("partitionLeaderEpoch").asInt();
        boolean transactional = told.get("isTransactional").asBoolean();
        boolean control = told.get("isControl").asBoolean();
        if (told.get("count").asInt() == 0) {
            ByteBuffer empty = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
            DefaultRecordBatch.writeEmptyHeader(empty, magic, producer, epoch, sequence, base, last, leader, type, time,
                    transactional, control);
            return empty.flip();
        }
        JsonNode horizon = told.get("deleteHorizonMs");
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(1024), magic,
                Compression.of(told.get("compression").asText()).build(), type, base,
                type == TimestampType.LOG_APPEND_TIME ? time : RecordBatch.NO_TIMESTAMP, producer, epoch, sequence,
                transactional, control, leader, Integer.MAX_VALUE,
                horizon.isNull() ? RecordBatch.NO_TIMESTAMP : horizon.asLong());
        for (int left = told.get("count").asInt(); left > 0; left--) {
            JsonNode row = rows.next();
            long offset = row.get("offset").asLong();
            long timestamp = row.get("timestamp").asLong();
            byte[] key = bytes(row.get("key"));
            byte[] value = bytes(row.get("value"));
            if (control) {
                builder.appendControlRecordWithOffset(offset, new SimpleRecord(timestamp, key, value));
            } else {
                builder.appendWithOffset(offset, timestamp, key, value, headers(row.get("headers")));
            }
        }
        if (magic == RecordBatch.MAGIC_VALUE_V2) {
            builder.overrideLastOffset(last);
        }
        return builder.build().buffer();
    }

    static Header[] headers(JsonNode told) {
        Header[] headers = new Header[told.size()];
        for (int index = 0; index < headers.length; index++) {
            headers[index] = new RecordHeader(told.get(index).get(0).asText(), bytes(told.get(index).get(1)));
        }
        return headers;
    }

    static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String text(ByteBuffer bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(Utils.toArray(bytes));
    }
}
