// Lines in: partitioner.rack.aware, client.rack, and for each partition the rack of its leader ("-" without a leader, "" without a rack) and its number of waiting batches, separated by tabs.
// Lines out: how often each partition is the next sticky one in 20,000 draws, or "refused".
import java.io.*;
import java.util.*;
import org.apache.kafka.clients.producer.internals.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.utils.internals.LogContext;

public class StickyPartitions {
  public static void main(String[] a) throws Exception {
    var next = BuiltInPartitioner.class.getDeclaredMethod("nextPartition", Cluster.class);
    next.setAccessible(true);
    var in = new BufferedReader(new InputStreamReader(System.in));
    var out = new StringBuilder();
    for (String line; (line = in.readLine()) != null; ) {
      String[] parts = line.split("\t", -1);
      boolean aware = Boolean.parseBoolean(parts[0]);
      try {
        new RecordAccumulator.PartitionerConfig(true, 0, aware, parts[1]);
      } catch (ConfigException e) {
        out.append("refused\n");
        continue;
      }
      int count = (parts.length - 2) / 2, known = 0;
      int[] sizes = new int[count], ids = new int[count];
      String[] racks = new String[count];
      var nodes = new ArrayList<Node>();
      var infos = new ArrayList<PartitionInfo>();
      for (int p = 0; p < count; p++) {
        String rack = parts[2 + 2 * p];
        Node leader = rack.equals("-") ? null : new Node(p, "b" + p, 9092, rack.isEmpty() ? null : rack);
        if (leader != null) {
          nodes.add(leader);
          ids[known] = p;
          racks[known] = leader.rack();
          sizes[known++] = Integer.parseInt(parts[3 + 2 * p]);
        }
        infos.add(new PartitionInfo("t", p, leader, new Node[0], new Node[0]));
      }
      var partitioner = new BuiltInPartitioner(new LogContext(), "t", 16384, aware, parts[1]);
      partitioner.updatePartitionLoadStats(sizes, ids, racks, known);
      var cluster = new Cluster("id", nodes, infos, Set.of(), Set.of());
      int[] drawn = new int[count];
      for (int i = 0; i < 20_000; i++) drawn[(int) next.invoke(partitioner, cluster)]++;
      for (int p = 0; p < count; p++) out.append(p == 0 ? "" : "\t").append(drawn[p]);
      out.append('\n');
    }
    System.out.print(out);
  }
}
