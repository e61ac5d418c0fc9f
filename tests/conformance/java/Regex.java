// Lines in: the UTF-8 of a pattern in hex, a tab, names separated by commas. Lines out: 1 or 0 for each name, or "refused".
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.regex.*;

public class Regex {
  public static void main(String[] a) throws Exception {
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var out = new StringBuilder();
    for (String line; (line = in.readLine()) != null; ) {
      String[] parts = line.split("\t", -1);
      try {
        Pattern p = Pattern.compile(new String(HexFormat.of().parseHex(parts[0]), StandardCharsets.UTF_8));
        for (String name : parts[1].split(",")) out.append(p.matcher(name).find() ? '1' : '0');
      } catch (PatternSyntaxException | StackOverflowError e) { out.append("refused"); }
      out.append('\n');
    }
    System.out.print(out);
  }
}
