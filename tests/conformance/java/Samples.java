// Lines in: "new" for new sensors, "record VALUE MS" or "measure MS". Lines out, for each "measure": the average, maximum, minimum, rate, count rate
// and count rate per hour of Kafka's own classes.
import java.io.*;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.*;
import org.apache.kafka.common.metrics.stats.*;

public class Samples {
  public static void main(String[] a) throws Exception {
    var config = new MetricConfig();
    MeasurableStat[] stats = {};
    var in = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = in.readLine()) != null; ) {
      String[] parts = line.split(" ");
      if (parts[0].equals("new")) {
        stats = new MeasurableStat[] {
          new Avg(), new Max(), new Min(), new Rate(), new Rate(new WindowedCount()), new Rate(TimeUnit.HOURS, new WindowedCount())
        };
      } else if (parts[0].equals("record")) {
        for (var stat : stats) stat.record(config, Double.parseDouble(parts[1]), Long.parseLong(parts[2]));
      } else {
        var out = new StringBuilder();
        for (var stat : stats) out.append(stat.measure(config, Long.parseLong(parts[1]))).append(' ');
        System.out.println(out.toString().trim());
      }
    }
  }
}
