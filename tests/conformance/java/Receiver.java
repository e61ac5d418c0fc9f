// A plugin of Kafka's brokers: it writes the metrics that clients push to the file of the property
// telemetry.lines, one line for each push and each metric, with tabs between the fields.

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;
import org.apache.kafka.shaded.io.opentelemetry.proto.common.v1.KeyValue;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.Metric;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.MetricsData;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.NumberDataPoint;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.ResourceMetrics;

@SuppressWarnings("removal")
public class Receiver implements MetricsReporter, ClientTelemetry {
    private Path lines;

    @Override
    public void configure(Map<String, ?> configs) {
        lines = Path.of((String) configs.get("telemetry.lines"));
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> {
            StringBuilder text = new StringBuilder();
            line(text, "push", context.clientId(), payload.clientInstanceId(), payload.isTerminating());
            try {
                for (ResourceMetrics resource : MetricsData.parseFrom(payload.data()).getResourceMetricsList()) {
                    Map<String, String> labels = map(resource.getResource().getAttributesList());
                    for (Metric metric : resource.getScopeMetrics(0).getMetricsList()) {
                        NumberDataPoint point = metric.hasSum()
                            ? metric.getSum().getDataPoints(0) : metric.getGauge().getDataPoints(0);
                        line(text, "metric", context.clientId(), metric.getName(), metric.getDataCase(),
                            metric.getSum().getAggregationTemporality(), metric.getSum().getIsMonotonic(),
                            point.getValueCase(), point.getAsDouble(), map(point.getAttributesList()), labels);
                    }
                }
                Files.writeString(lines, text, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
    }

    private static void line(StringBuilder text, Object... fields) {
        text.append(String.join("\t", java.util.Arrays.stream(fields).map(String::valueOf).toList())).append("\n");
    }

    private static Map<String, String> map(List<KeyValue> attributes) {
        Map<String, String> map = new TreeMap<>();
        attributes.forEach(attribute -> map.put(attribute.getKey(), attribute.getValue().getStringValue()));
        return map;
    }

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void close() {}
}
