package fermata.ycsb;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.Vector;
import java.util.concurrent.atomic.AtomicInteger;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * YCSB on the registers of Fermata, over REST: a record is one register, all operations are
 * linearizable.
 *
 * <p>An update of some fields is a read and a write, since a register is written whole; with {@code
 * writeallfields=true} it is one write. Scans are not implemented: registers are not read in order.
 */
public final class FermataClient extends DB {
  /** REST addresses, separated by commas; the threads take them in turn. */
  private static final String ENDPOINTS = "fermata.endpoints";

  /** A keyspace of registers. */
  private static final String KEYSPACE = "fermata.keyspace";

  /** Longer than a node tries by itself before it answers that no quorum is there. */
  private static final Duration PATIENCE = Duration.ofSeconds(30);

  private static final AtomicInteger THREADS = new AtomicInteger();

  private HttpClient http;
  private String base;
  private boolean whole;

  @Override
  public void init() throws DBException {
    String[] endpoints = getProperties().getProperty(ENDPOINTS, "127.0.0.1:7101").split(",");
    String endpoint = endpoints[THREADS.getAndIncrement() % endpoints.length].trim();
    if (endpoint.isEmpty()) {
      throw new DBException(ENDPOINTS + " names HOST:PORT of REST, separated by commas");
    }
    String keyspace = getProperties().getProperty(KEYSPACE, "registers");
    base = "http://" + endpoint + "/v1/keyspaces/" + encoded(keyspace) + "/keys/";
    whole = Boolean.parseBoolean(getProperties().getProperty("writeallfields", "false"));
    http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
  }

  @Override
  public Status read(
      String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    Map<String, byte[]> found = new TreeMap<>();
    Status status = fetch(table, key, found);
    found.forEach(
        (name, value) -> {
          if (fields == null || fields.contains(name)) {
            result.put(name, new ByteArrayByteIterator(value));
          }
        });
    return status;
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    return store(table, key, arrays(values));
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    Map<String, byte[]> fresh = arrays(values);
    if (whole) {
      return store(table, key, fresh);
    }
    Map<String, byte[]> record = new TreeMap<>();
    Status status = fetch(table, key, record);
    if (!status.isOk()) {
      return status;
    }
    record.putAll(fresh);
    return store(table, key, record);
  }

  @Override
  public Status delete(String table, String key) {
    return status(send(request(table, key).DELETE().build()));
  }

  @Override
  public Status scan(
      String table,
      String start,
      int count,
      Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    return Status.NOT_IMPLEMENTED;
  }

  private Status fetch(String table, String key, Map<String, byte[]> record) {
    HttpResponse<byte[]> answer =
        send(request(table, key).header("Accept", "application/octet-stream").GET().build());
    Status status = status(answer);
    if (status.isOk()) {
      try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(answer.body()))) {
        for (int left = in.readInt(); left > 0; left--) {
          String name = in.readUTF();
          record.put(name, in.readNBytes(in.readInt()));
        }
      } catch (IOException e) {
        return Status.UNEXPECTED_STATE;
      }
    }
    return status;
  }

  private Status store(String table, String key, Map<String, byte[]> record) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (DataOutputStream out = new DataOutputStream(bytes)) {
      out.writeInt(record.size());
      for (Map.Entry<String, byte[]> field : record.entrySet()) {
        out.writeUTF(field.getKey());
        out.writeInt(field.getValue().length);
        out.write(field.getValue());
      }
    } catch (IOException e) {
      return Status.BAD_REQUEST;
    }
    HttpRequest.BodyPublisher body = HttpRequest.BodyPublishers.ofByteArray(bytes.toByteArray());
    HttpRequest.Builder request =
        request(table, key).header("Content-Type", "application/octet-stream").PUT(body);
    return status(send(request.build()));
  }

  private HttpRequest.Builder request(String table, String key) {
    String uri = base + encoded(table + "/" + key) + "?consistency=linearizable";
    return HttpRequest.newBuilder(URI.create(uri)).timeout(PATIENCE);
  }

  /** The answer, or null where there was none. A write is never sent twice. */
  private HttpResponse<byte[]> send(HttpRequest request) {
    try {
      return http.send(request, HttpResponse.BodyHandlers.ofByteArray());
    } catch (IOException e) {
      return null;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return null;
    }
  }

  private static Status status(HttpResponse<byte[]> answer) {
    if (answer == null) {
      return Status.SERVICE_UNAVAILABLE;
    }
    int code = answer.statusCode();
    if (code >= 200 && code < 300) {
      return Status.OK;
    }
    return switch (code) {
      case 404 -> Status.NOT_FOUND;
      case 503 -> Status.SERVICE_UNAVAILABLE;
      case 400 -> Status.BAD_REQUEST;
      default -> new Status("HTTP_" + code, new String(answer.body(), StandardCharsets.UTF_8));
    };
  }

  private static Map<String, byte[]> arrays(Map<String, ByteIterator> values) {
    Map<String, byte[]> arrays = new TreeMap<>();
    values.forEach((name, value) -> arrays.put(name, value.toArray()));
    return arrays;
  }

  private static String encoded(String text) {
    return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
  }
}
