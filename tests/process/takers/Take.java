import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/** Takes so many messages of each address, and prints what came: status, body, and header lines. */
public class Take {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        int count = Integer.parseInt(arguments[0]);
        for (int at = 1; at < arguments.length; at++) {
            String[] parts = arguments[at].split(" ");
            for (int number = 0; number < count; number++) {
                HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(parts[0]));
                for (int name = 1; name < parts.length; name += 2) {
                    request.header(parts[name], parts[name + 1]);
                }
                HttpResponse<byte[]> reply =
                    client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
                StringBuilder line = new StringBuilder();
                line.append(reply.statusCode()).append(' ').append(encoded(reply.body()));
                reply.headers().map().forEach((name, values) -> line.append(' ').append(name)
                    .append(' ').append(encoded(values.get(0).getBytes(StandardCharsets.ISO_8859_1))));
                System.out.println(line);
            }
        }
    }

    static String encoded(byte[] value) {
        return "=" + Base64.getEncoder().encodeToString(value);
    }
}
