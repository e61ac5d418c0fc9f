// Lines in: "jaas" or "properties", a tab, the UTF-8 of a text in hex. Lines out: sorted names and values in hex, separated
// by commas (after the module), or "refused".
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

public class Texts {
  static String hex(String text) { return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8)); }

  static String said(String first, Map<?, ?> pairs) {
    var out = new ArrayList<String>();
    if (first != null) out.add(hex(first));
    var sorted = new TreeMap<String, String>();
    pairs.forEach((name, value) -> sorted.put(hex((String) name), hex((String) value)));
    sorted.forEach((name, value) -> { out.add(name); out.add(value); });
    return String.join(",", out);
  }

  public static void main(String[] a) throws Exception {
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var out = new StringBuilder();
    for (String line; (line = in.readLine()) != null; ) {
      String[] parts = line.split("\t", -1);
      String text = new String(HexFormat.of().parseHex(parts[1]), StandardCharsets.UTF_8);
      try {
        if (parts[0].equals("jaas")) {
          var entry = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(text)))
              .configurationEntries().get(0);
          out.append(said(entry.getLoginModuleName(), entry.getOptions()));
        } else {
          var properties = new Properties();
          properties.load(new StringReader(text));
          out.append(said(null, properties));
        }
      } catch (IllegalArgumentException | NullPointerException e) { out.append("refused"); }
      out.append('\n');
    }
    System.out.print(out);
  }
}
