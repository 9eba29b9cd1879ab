// Produce, consume with acknowledgements, and call a service: java.net.http and nothing else.
//
//     zbus serve
//     java examples/plain_http/Parcels.java http://127.0.0.1:15555

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Map;
import java.util.UUID;
import java.util.function.BiConsumer;
import java.util.function.UnaryOperator;

public class Parcels {
    static final HttpClient client =
        HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    static String broker = "http://127.0.0.1:15555";

    /** One request. A status from 400 on is a refusal, and its body is a sentence that says why. */
    static HttpResponse<String> ask(String path, Map<String, String> headers, String body)
            throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(URI.create(broker + path))
            .POST(BodyPublishers.ofString(body));
        headers.forEach(request::header);
        var reply = client.send(request.build(), BodyHandlers.ofString());
        if (reply.statusCode() >= 400) throw new IOException(reply.body());
        return reply;
    }

    static String header(HttpResponse<String> reply, String name, String otherwise) {
        return reply.headers().firstValue(name).orElse(otherwise);
    }

    /** Store a message. If no reply comes, send it again with the same key: it is stored once. */
    static String produce(String topic, String body, String key) throws Exception {
        return header(ask("/" + topic, Map.of("idempotency-key", key), body), "durability", "");
    }

    /** Give each message of a group to `work`, and acknowledge it when `work` is done. */
    static void consume(String topic, String group, BiConsumer<String, String> work, int waitMs)
            throws Exception {
        var path = "/" + topic + "/" + group + "?cmd=";
        while (true) {
            var reply = ask(path + "consume&timeout=" + waitMs, Map.of(), "");
            if (reply.statusCode() == 204) return; // nothing came; a worker would ask again
            work.accept(reply.body(), header(reply, "retry", "0")); // handed out before, so often
            ask(path + "ack&offset=" + header(reply, "offset", "")
                + "&partition=" + header(reply, "partition", "0"), Map.of(), "");
        }
    }

    /** Answer calls for ever. The answer goes to the session that called, under the call's id. */
    static void serve(String topic, UnaryOperator<String> answer) {
        try {
            while (true) {
                var call = ask("/" + topic + "?cmd=consume&timeout=20000", Map.of(), "");
                if (call.statusCode() == 204) continue;
                var to = Map.of("recver", header(call, "sender", ""),
                                "id", header(call, "origin_id", ""));
                ask("/?cmd=route", to, answer.apply(call.body()));
            }
        } catch (IOException | InterruptedException error) {
            System.err.println("the service ends: " + error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 0) broker = arguments[0];
        ask("/Parcels/packing?cmd=declare&ack=true&group_lease=30s", Map.of(), "");
        var durability = produce("Parcels", "two chairs", UUID.randomUUID().toString());
        System.out.println("produced, durability " + durability);
        consume("Parcels", "packing",
            (body, retry) -> System.out.println("packed " + body + " " + retry), 200);

        ask("/Shout?cmd=declare&topic_mask=3", Map.of(), "");
        var service = new Thread(() -> serve("Shout", String::toUpperCase));
        service.setDaemon(true); // it waits for its next call when the program ends
        service.start();
        var answer = ask("/Shout", Map.of("timeout", "5000"), "hello");
        System.out.println("answered " + answer.body());
    }
}
