// Kafka's own message classes behind a pipe: one JSON object per line in, one per line out, in the same order.
//
//   {"name": "JoinGroupRequest", "version": 9, "json": {...}}  ->  {"hex": "..."}    encode the JSON
//   {"name": "JoinGroupRequest", "version": 9, "hex": "..."}   ->  {"json": {...}}   decode the bytes
//   {"name": ..., "version": ..., "json": ..., "hex": ...}     ->  both results
//   {"name": ..., "version": ..., "all": ["...", ...]}         ->  {"read": [{...} or null, ...]}   null: rejected
//   {"name": ..., "version": ..., "draw": 20, "seed": 7}       ->  {"drawn": [{"drawn": "...", "hex": "...", "json": {...}}, ...]}
//   {"frame": "..."}                                           ->  {"api": "Heartbeat", "version": 4, "header": 2, "answer": 1,
//                                                                   "client": "c", "correlation": 7, "json": {...}, "left": 0}
//   {"subscription": "...", "version": 3}                      ->  {"hex": "..."}    decode and encode it with ConsumerProtocol
//   {"assignment": "...", "version": 3}                        ->  {"hex": "..."}
//   {"control": "VotersRecord", "version": 0, "json": {...}}   ->  {"hex": "..."}    the control batch with this record
//   {"marker": "COMMIT", "epoch": 7}                           ->  {"hex": "..."}    the control batch that ends a transaction
//   {"throttled": 1, "version": 8}                             ->  {"quiet": true}   does a client pause after such a response?
//   {"errors": true}                                           ->  {"errors": [[code, name, retriable, metadata], ...]}
//
// "draw" returns random messages, encoded by Kafka's schema codec ("drawn"), and then decoded and encoded by the generated
// class ("hex", "json"). The encodings differ if a tagged field has its default.
//
// If Kafka rejects the input, the answer is {"error": "text"}. The JSON is that of the generated JsonConverter classes. They
// omit record bytes and unknown tagged fields, which are added here by walking the objects.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;

public class Bridge {
    private static final String UNKNOWN_TAGS = "_unknownTaggedFields";
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final Map<String, Codec> CODECS = new HashMap<>();

    private record Codec(Class<?> type, Method toJson, Method fromJson) {
        static Codec of(String name) throws ReflectiveOperationException {
            for (String candidate : List.of(
                    "org.apache.kafka.common.message." + name + "Data",
                    "org.apache.kafka.common.message." + name,
                    "org.apache.kafka.coordinator.group.generated." + name,
                    "org.apache.kafka.coordinator.transaction.generated." + name,
                    "org.apache.kafka.coordinator.share.generated." + name,
                    "org.apache.kafka.common.metadata." + name,
                    "org.apache.kafka.raft.generated." + name,
                    "org.apache.kafka.server.log.remote.metadata.storage.generated." + name)) {
                try {
                    Class<?> type = Class.forName(candidate);
                    Class<?> converter = Class.forName(candidate + "JsonConverter");
                    return new Codec(type, converter.getMethod("write", type, short.class),
                        converter.getMethod("read", JsonNode.class, short.class));
                } catch (ClassNotFoundException missing) {
                    // Try the next package.
                }
            }
            throw new ClassNotFoundException(name);
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer;
            try {
                answer = answer(MAPPER.readTree(line));
            } catch (InvocationTargetException refused) {
                answer = MAPPER.createObjectNode().put("error", String.valueOf(refused.getCause()));
            } catch (Exception refused) {
                answer = MAPPER.createObjectNode().put("error", String.valueOf(refused));
            }
            out.print(MAPPER.writeValueAsString(answer) + "\n");
            if (!in.ready()) {
                out.flush();
            }
        }
    }

    private static ObjectNode answer(JsonNode question) throws Exception {
        ObjectNode answer = MAPPER.createObjectNode();
        if (question.has("errors")) {
            ArrayNode errors = answer.putArray("errors");
            for (Errors error : Errors.values()) {
                errors.addArray().add(error.code()).add(error.name())
                    .add(error.exception() instanceof RetriableException)
                    .add(error.exception() instanceof InvalidMetadataException);
            }
            return answer;
        }
        if (question.has("frame")) {
            return frame(ByteBuffer.wrap(HEX.parseHex(question.get("frame").textValue())));
        }
        if (question.has("marker")) {
            ControlRecordType type = ControlRecordType.valueOf(question.get("marker").textValue());
            EndTransactionMarker marker = new EndTransactionMarker(type, question.get("epoch").intValue());
            return hex(MemoryRecords.withEndTransactionMarker(5L, 1_700_000_000_000L, 3, 9L, (short) 1, marker).buffer());
        }
        short version = (short) question.get("version").intValue();
        if (question.has("throttled")) {
            ApiKeys api = ApiKeys.forId(question.get("throttled").intValue());
            ApiMessage empty = api.messageType.newResponse();
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer bytes = ByteBuffer.allocate(empty.size(cache, version));
            empty.write(new ByteBufferAccessor(bytes), cache, version);
            bytes.flip();
            AbstractResponse response = AbstractResponse.parseResponse(api, new ByteBufferAccessor(bytes), version);
            return answer.put("quiet", response.shouldClientThrottle(version));
        }
        if (question.has("control")) {
            String name = question.get("control").textValue();
            Codec body = codec(name);
            Message message = (Message) body.fromJson.invoke(null, question.get("json"), version);
            MemoryRecords records = (MemoryRecords) MemoryRecords.class
                .getMethod("with" + name, long.class, long.class, int.class, ByteBuffer.class, body.type)
                .invoke(null, 5L, 1_700_000_000_000L, 3, ByteBuffer.allocate(1 << 20), message);
            return hex(records.buffer());
        }
        if (question.has("subscription")) {
            ByteBuffer bytes = ByteBuffer.wrap(HEX.parseHex(question.get("subscription").textValue()));
            return hex(ConsumerProtocol.serializeSubscription(ConsumerProtocol.deserializeSubscription(bytes), version));
        }
        if (question.has("assignment")) {
            ByteBuffer bytes = ByteBuffer.wrap(HEX.parseHex(question.get("assignment").textValue()));
            return hex(ConsumerProtocol.serializeAssignment(ConsumerProtocol.deserializeAssignment(bytes), version));
        }
        Codec codec = codec(question.get("name").textValue());
        if (question.has("draw")) {
            Random random = new Random(question.get("seed").longValue());
            Schema schema = ((Schema[]) codec.type.getField("SCHEMAS").get(null))[version];
            ArrayNode drawn = answer.putArray("drawn");
            for (int i = question.get("draw").intValue(); i > 0; i--) {
                Struct struct = new Draw(random).struct(schema);
                ByteBuffer buffer = ByteBuffer.allocate(struct.sizeOf());
                struct.writeTo(buffer);
                Message message = read(codec, buffer.array(), version);
                drawn.addObject().put("drawn", HEX.formatHex(buffer.array()))
                    .put("hex", HEX.formatHex(write(message, version)))
                    .set("json", json(codec, message, version));
            }
        }
        if (question.has("all")) {
            ArrayNode read = answer.putArray("read");
            for (JsonNode hex : question.get("all")) {
                try {
                    read.add(json(codec, read(codec, HEX.parseHex(hex.textValue()), version), version));
                } catch (RuntimeException | InvocationTargetException refused) {
                    read.addNull();
                }
            }
        }
        if (question.has("json")) {
            Message message = (Message) codec.fromJson.invoke(null, question.get("json"), version);
            addTags(message, question.get("json"));
            answer.put("hex", HEX.formatHex(write(message, version)));
        }
        if (question.has("hex")) {
            byte[] bytes = HEX.parseHex(question.get("hex").textValue());
            answer.set("json", json(codec, read(codec, bytes, version), version));
        }
        return answer;
    }

    private static Codec codec(String name) throws ReflectiveOperationException {
        if (!CODECS.containsKey(name)) {
            CODECS.put(name, Codec.of(name));
        }
        return CODECS.get(name);
    }

    private static ObjectNode hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return MAPPER.createObjectNode().put("hex", HEX.formatHex(bytes));
    }

    /** Parse a whole request as a broker's network layer does. */
    private static ObjectNode frame(ByteBuffer buffer) throws Exception {
        RequestHeader header = RequestHeader.parse(buffer);
        short version = header.apiVersion();
        Message body = header.apiKey().messageType.newRequest();
        body.read(new ByteBufferAccessor(buffer), version);
        ObjectNode answer = MAPPER.createObjectNode().put("api", header.apiKey().messageType.name).put("version", version)
            .put("header", header.headerVersion()).put("answer", header.apiKey().responseHeaderVersion(version))
            .put("client", header.clientId()).put("correlation", header.correlationId()).put("left", buffer.remaining());
        answer.set("json", json(codec(header.apiKey().messageType.name + "Request"), body, version));
        return answer;
    }

    private static Message read(Codec codec, byte[] bytes, short version) throws ReflectiveOperationException {
        Message message = (Message) codec.type.getConstructor().newInstance();
        message.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), version);
        return message;
    }

    private static ObjectNode json(Codec codec, Message message, short version) throws Exception {
        ObjectNode json = (ObjectNode) codec.toJson.invoke(null, message, version);
        addWhatIsLeftOut(message, json);
        return json;
    }

    private static byte[] write(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("the message is shorter than its size says");
        }
        return buffer.array();
    }

    /** Set unknown tagged fields from JSON, at every depth. */
    private static void addTags(Message message, JsonNode json) throws Exception {
        if (json.has(UNKNOWN_TAGS)) {
            for (JsonNode tag : json.get(UNKNOWN_TAGS)) {
                message.unknownTaggedFields().add(new RawTaggedField(tag.get("tag").intValue(), tag.get("data").binaryValue()));
            }
        }
        for (Field field : fields(message)) {
            JsonNode there = json.get(field.getName());
            if (there == null || there.isNull()) {
                continue;
            }
            Object value = field.get(message);
            if (value instanceof Message part) {
                addTags(part, there);
            } else if (value instanceof Iterable<?> items) {
                Iterator<JsonNode> nodes = there.elements();
                for (Object item : items) {
                    JsonNode node = nodes.next();
                    if (item instanceof Message part) {
                        addTags(part, node);
                    }
                }
            }
        }
    }

    /** Add record bytes and unknown tagged fields to the JSON, at every depth. */
    private static void addWhatIsLeftOut(Message message, ObjectNode json) throws Exception {
        if (!message.unknownTaggedFields().isEmpty()) {
            ArrayNode tags = json.putArray(UNKNOWN_TAGS);
            for (RawTaggedField tag : message.unknownTaggedFields()) {
                tags.addObject().put("tag", tag.tag()).put("data", tag.data());
            }
        }
        for (Field field : fields(message)) {
            JsonNode there = json.get(field.getName());
            if (there == null || there.isNull()) {
                continue;
            }
            Object value = field.get(message);
            if (value instanceof MemoryRecords records) {
                ByteBuffer buffer = records.buffer().duplicate();
                byte[] bytes = new byte[buffer.remaining()];
                buffer.get(bytes);
                json.put(field.getName(), Base64.getEncoder().encodeToString(bytes));
            } else if (value instanceof Message part) {
                addWhatIsLeftOut(part, (ObjectNode) there);
            } else if (value instanceof Iterable<?> items) {
                Iterator<JsonNode> nodes = there.elements();
                for (Object item : items) {
                    JsonNode node = nodes.next();
                    if (item instanceof Message part) {
                        addWhatIsLeftOut(part, (ObjectNode) node);
                    }
                }
            }
        }
    }

    private static List<Field> fields(Message message) {
        return FIELDS.get(message.getClass());
    }

    private static final ClassValue<List<Field>> FIELDS = new ClassValue<>() {
        @Override
        protected List<Field> computeValue(Class<?> type) {
            return Arrays.stream(type.getDeclaredFields())
                .filter(field -> !Modifier.isStatic(field.getModifiers()))
                .peek(field -> field.setAccessible(true))
                .toList();
        }
    };

    /** Random values for every type of a Schema. */
    private record Draw(Random random) {
        /** Above every tag that Kafka uses: a tag of another version would be rejected. */
        private static final int UNUSED_TAGS = 50;
        private static final String[] CHARACTERS = {"a", "Z", "-", "\u0000", "\u00e9", "\u20ac", "\ud83d\ude00"};

        Struct struct(Schema schema) {
            Struct struct = new Struct(schema);
            for (BoundField field : schema.fields()) {
                struct.set(field, field.def.type instanceof TaggedFields tags ? tagged(tags) : value(field.def.type));
            }
            return struct;
        }

        private TreeMap<Integer, Object> tagged(TaggedFields type) {
            TreeMap<Integer, Object> values = new TreeMap<>();
            type.fields().forEach((tag, field) -> {
                if (random.nextInt(3) > 0) {
                    // The two codecs encode a null tagged struct differently.
                    Object value = value(field.type);
                    while (value == null && field.type instanceof Schema) {
                        value = value(field.type);
                    }
                    values.put(tag, value);
                }
            });
            while (random.nextInt(4) == 0) {
                int tag = UNUSED_TAGS + random.nextInt(random.nextBoolean() ? 300 : Integer.MAX_VALUE - UNUSED_TAGS);
                values.put(tag, new RawTaggedField(tag, bytes()));
            }
            return values;
        }

        private Object value(Type type) {
            if (type.isNullable() && random.nextInt(4) == 0) {
                return null;
            }
            if (type.isArray()) {
                Type element = type.arrayElementType().get();
                int size = element instanceof Schema || random.nextInt(16) > 0 ? random.nextInt(4) : 120 + random.nextInt(20);
                return IntStream.range(0, size).mapToObj(i -> value(element)).toArray();
            }
            if (type instanceof Schema schema) {
                return struct(schema);
            }
            return switch (type.toString().replace("COMPACT_", "").replace("NULLABLE_", "")) {
                case "BOOLEAN" -> random.nextBoolean();
                case "INT8" -> (byte) number();
                case "INT16" -> (short) number();
                case "UINT16" -> (int) number() & 0xffff;
                case "INT32" -> (int) number();
                case "UNSIGNED_INT32", "UINT32" -> number() & 0xffffffffL;
                case "INT64" -> number();
                case "FLOAT64" -> number(random.nextBoolean() ? random.nextGaussian() : Double.longBitsToDouble(random.nextLong()));
                case "UUID" -> random.nextInt(4) == 0 ? Uuid.ZERO_UUID : new Uuid(number(), number());
                case "STRING" -> text();
                case "BYTES" -> ByteBuffer.wrap(bytes());
                case "RECORDS" -> MemoryRecords.readableRecords(ByteBuffer.wrap(bytes()));
                default -> throw new IllegalArgumentException("a type that nobody draws: " + type);
            };
        }

        private long number() {
            return random.nextInt(4) == 0 ? random.nextInt(4) - 2 : random.nextLong() >> random.nextInt(64);
        }

        /** JSON has only one NaN. */
        private double number(double value) {
            return Double.isNaN(value) ? Double.NaN : value;
        }

        private int length() {
            return random.nextInt(16) > 0 ? random.nextInt(9) : random.nextInt(16) > 0 ? 120 + random.nextInt(20) : random.nextInt(20000);
        }

        private byte[] bytes() {
            byte[] bytes = new byte[length()];
            random.nextBytes(bytes);
            return bytes;
        }

        private String text() {
            String one = CHARACTERS[random.nextInt(CHARACTERS.length)];
            return one.repeat(length() / one.getBytes(StandardCharsets.UTF_8).length) + CHARACTERS[random.nextInt(3)].repeat(random.nextInt(2));
        }
    }
}
