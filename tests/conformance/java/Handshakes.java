// Lines in: the properties files of a client and a broker, and the host name that the client expects, separated by tabs.
// Lines out: "in" and the subject of the client's certificate, or the end that failed and its error. TLS is Kafka's own
// (DefaultSslEngineFactory), without a socket.
import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import javax.net.ssl.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.SslConfigs;
import org.apache.kafka.common.security.ssl.DefaultSslEngineFactory;

public class Handshakes {
  static DefaultSslEngineFactory made(String path) throws Exception {
    var given = new Properties();
    try (var in = new FileReader(path, StandardCharsets.UTF_8)) { given.load(in); }
    var known = new ConfigDef();
    SslConfigs.addClientSslSupport(known);
    Map<String, Object> all = new HashMap<>(known.parse(given));
    all.put("ssl.client.auth", given.getOrDefault("ssl.client.auth", "none"));
    var factory = new DefaultSslEngineFactory();
    factory.configure(all);
    return factory;
  }

  static String why(Throwable error) {
    while (error.getCause() != null) error = error.getCause();
    return String.valueOf(error.getMessage()).replace('\n', ' ');
  }

  /** Run all pending steps of one end; its output is appended to `out`. */
  static void work(SSLEngine end, ByteBuffer in, ByteBuffer out) throws SSLException {
    var room = ByteBuffer.allocate(1 << 16);
    in.flip();
    try {
      for (int idle = 0; idle < 2; ) {
        int before = in.remaining() - out.position();
        for (Runnable task; (task = end.getDelegatedTask()) != null; ) task.run();
        if (end.getHandshakeStatus() == SSLEngineResult.HandshakeStatus.NEED_WRAP) end.wrap(ByteBuffer.allocate(0), out);
        else { room.clear(); end.unwrap(in, room); }
        idle = in.remaining() - out.position() == before ? idle + 1 : 0;
      }
    } catch (SSLException error) {
      while (!end.isOutboundDone() && end.wrap(ByteBuffer.allocate(0), out).bytesProduced() > 0) { }
      throw error;
    } finally { in.compact(); }
  }

  static String shaken(SSLEngine client, SSLEngine broker) throws SSLException {
    var there = ByteBuffer.allocate(1 << 17);
    var back = ByteBuffer.allocate(1 << 17);
    String wrong = null;
    client.beginHandshake();
    for (int round = 0; round < 8; round++) {
      try { work(client, back, there); }
      catch (SSLException error) { return wrong != null ? wrong : "client: " + why(error); }
      try { if (wrong == null) work(broker, there, back); }
      catch (SSLException error) { wrong = "broker: " + why(error); }
    }
    if (wrong != null) return wrong;
    try { return "in " + broker.getSession().getPeerPrincipal().getName(); }
    catch (SSLPeerUnverifiedException error) { return "in"; }
  }

  public static void main(String[] a) throws Exception {
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      String[] parts = line.split("\t", -1);
      String said;
      try {
        var broker = made(parts[1]).createServerSslEngine("", 0);
        try { said = shaken(made(parts[0]).createClientSslEngine(parts[2], 9093, "https"), broker); }
        catch (SSLException error) { said = "odd: " + why(error); }
      } catch (Exception error) { said = "refused: " + why(error); }
      System.out.println(said);
    }
  }
}
