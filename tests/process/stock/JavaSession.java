import io.zbus.mq.Broker;
import io.zbus.mq.Broker.ServerSelector;
import io.zbus.mq.BrokerRouteTable;
import io.zbus.mq.ConsumeGroup;
import io.zbus.mq.Consumer;
import io.zbus.mq.ConsumerConfig;
import io.zbus.mq.Message;
import io.zbus.mq.MessageHandler;
import io.zbus.mq.MqClient;
import io.zbus.mq.Producer;
import io.zbus.mq.Protocol;
import io.zbus.mq.Protocol.ConsumeGroupInfo;
import io.zbus.mq.Protocol.ServerInfo;
import io.zbus.mq.Protocol.TopicInfo;
import io.zbus.mq.Protocol.TrackerInfo;
import io.zbus.rpc.Request;
import io.zbus.rpc.RpcInvoker;
import io.zbus.rpc.bootstrap.mq.ClientBootstrap;
import io.zbus.rpc.bootstrap.mq.ServiceBootstrap;
import io.zbus.transport.EventLoop;
import io.zbus.transport.ServerAddress;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * What a program written for the Java client 0.11 does, in the words of that client, unmodified:
 * `java JavaSession <session> <address> ...`. Lines on the standard output tell the test how far it
 * is; `step` waits for its line on the standard input.
 */
public class JavaSession {
    static final int WAIT_S = 20;
    static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    /** Where the libraries cannot write to: they log to the standard output. */
    static final java.io.PrintStream TEST = System.out;

    static void step(String name) throws IOException {
        TEST.println(name);
        TEST.flush();
        check("go on", INPUT.readLine());
    }

    static void check(Object expected, Object found) {
        if (expected == null ? found != null : !expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    /** Wait until something that other threads do is true. */
    static void until(String what, Callable<Boolean> holds) throws Exception {
        for (int i = 0; i < WAIT_S * 50; i++) {
            if (holds.call()) return;
            Thread.sleep(20);
        }
        throw new AssertionError("it never came true: " + what);
    }

    static Message message(String topic, String tag, String body) {
        Message message = new Message();
        message.setTopic(topic);
        if (tag != null) message.setTag(tag);
        message.setBody(body);
        return message;
    }

    static class Received {
        final Message message;
        final MqClient client;

        Received(Message message, MqClient client) {
            this.message = message;
            this.client = client;
        }
    }

    static Consumer consumer(
            Broker broker, String topic, ConsumeGroup group, BlockingQueue<Received> received)
            throws IOException {
        ConsumerConfig config = new ConsumerConfig(broker);
        config.setTopic(topic);
        if (group != null) config.setConsumeGroup(group);
        config.setMessageHandler(
                new MessageHandler() {
                    @Override
                    public void handle(Message message, MqClient client) {
                        received.add(new Received(message, client));
                    }
                });
        Consumer consumer = new Consumer(config);
        consumer.start();
        return consumer;
    }

    static Received take(BlockingQueue<Received> received) throws Exception {
        Received found = received.poll(WAIT_S, TimeUnit.SECONDS);
        if (found == null) throw new AssertionError("no message came");
        return found;
    }

    static MqClient client(String address, EventLoop loop) throws Exception {
        MqClient client = new MqClient(address, loop);
        client.ensureConnectedAsync();
        return client;
    }

    static int consumerCount(MqClient client, String topic) throws Exception {
        TopicInfo info = client.queryServer().topicTable.get(topic);
        return info == null ? 0 : info.consumerCount;
    }

    /** One connection. */
    static void client_session(String address) throws Exception {
        MqClient client = client(address, new EventLoop());
        TopicInfo topic = client.declareTopic("MyTopic");
        check("MyTopic", topic.topicName);
        check(address, topic.serverAddress.address);
        ConsumeGroup group = new ConsumeGroup("g");
        group.setFilter("a.*");
        ConsumeGroupInfo info = client.declareGroup("MyTopic", group);
        check("g", info.groupName);
        check("a.*", info.filter);
        Message sent = client.produce(message("MyTopic", "a.b", "hello \u4e2d\u6587"));
        check(200, sent.getStatus());
        Long.parseLong(sent.getBodyString());
        Message found = client.consume("MyTopic");
        check("hello \u4e2d\u6587", found.getBodyString());
        check("a.b", found.getTag());
        check("GET", found.getOriginMethod());
        check("a.b", client.consume("MyTopic", "g").getTag());
        client.ack(found);
        client.ackAsync(found);
        check(1L, client.queryTopic("MyTopic").messageDepth);
        check(0L, client.queryGroup("MyTopic", "g").messageCount);
        check(1, client.queryServer().topicTable.size());
        TrackerInfo tracker = client.queryTracker();
        check(true, tracker.serverTable.containsKey(address));
        check(404, client.produce(message("unknown", null, "x")).getStatus());
        check(404, client.consume("MyTopic", "unknown").getStatus());
        ConsumeGroup auto = ConsumeGroup.createTempBroadcastGroup();
        check("MyTopic0", client.declareGroup("MyTopic", auto).groupName);
        client.unconsume("MyTopic", "g");
        until("the reader has left", () -> consumerCount(client, "MyTopic") == 1);
        client.emptyGroup("MyTopic", "g");
        client.emptyTopic("MyTopic");
        client.removeGroup("MyTopic", "g");
        client.removeTopic("MyTopic");
        check(0, client.queryServer().topicTable.size());
        Message heartbeat = new Message();
        heartbeat.setCommand(Protocol.HEARTBEAT);
        client.invokeAsync(heartbeat, null);
        check(0, client.queryServer().topicTable.size());
        client.close();
    }

    /** Broker with a tracker, Producer, Consumer, filters, acknowledgements, pause. */
    static void queue_session(String address) throws Exception {
        Broker broker = new Broker(address);
        MqClient watcher = client(address, new EventLoop());
        Producer producer = new Producer(broker);
        producer.declareTopic("MyTopic");
        BlockingQueue<Received> everything = new LinkedBlockingQueue<>();
        BlockingQueue<Received> some = new LinkedBlockingQueue<>();
        Consumer all = consumer(broker, "MyTopic", null, everything);
        ConsumeGroup filtered = new ConsumeGroup("filtered");
        filtered.setFilter("a.*;x");
        consumer(broker, "MyTopic", filtered, some);
        until("two readers", () -> consumerCount(watcher, "MyTopic") == 2);
        for (String tag : new String[] {"a.b", "b.b", "x"}) {
            check(200, producer.publish(message("MyTopic", tag, tag)).getStatus());
        }
        for (String tag : new String[] {"a.b", "b.b", "x"}) {
            check(tag, take(everything).message.getBodyString());
        }
        check("a.b", take(some).message.getTag());
        check("x", take(some).message.getTag());

        ConsumeGroup leasing = new ConsumeGroup("leased");
        leasing.setAck(true);
        leasing.setAckTimeout(300L);
        BlockingQueue<Received> leased = new LinkedBlockingQueue<>();
        consumer(broker, "MyTopic", leasing, leased);
        until("three readers", () -> consumerCount(watcher, "MyTopic") == 3);
        producer.publish(message("MyTopic", null, "again"));
        Received first = take(leased);
        Received second = take(leased);
        check(null, first.message.getHeader("retry"));
        check("1", second.message.getHeader("retry"));
        check(first.message.getId(), second.message.getId());
        check(first.message.getOffset(), second.message.getOffset());
        second.client.ackAsync(second.message);
        check("again", take(everything).message.getBodyString());

        BlockingQueue<Received> alone = new LinkedBlockingQueue<>();
        ConsumeGroup broadcast = ConsumeGroup.createTempBroadcastGroup();
        Consumer temporary = consumer(broker, "MyTopic", broadcast, alone);
        until("the broadcast", () -> consumerCount(watcher, "MyTopic") == 4);
        check(401, watcher.consume("MyTopic", "MyTopic0").getStatus());
        temporary.close();
        until("it is gone", () -> watcher.queryTopic("MyTopic").consumeGroup("MyTopic0") == null);

        all.pause();
        until("the pause", () -> consumerCount(watcher, "MyTopic") == 2);
        producer.publish(message("MyTopic", null, "later"));
        all.resume();
        check("later", take(everything).message.getBodyString());
        producer.removeTopic("MyTopic");
        until("the topic is declared again", () -> consumerCount(watcher, "MyTopic") >= 2);
    }

    /** What is called. */
    public static class Service {
        public int plus(int a, int b) {
            return a + b;
        }

        public String[] echo(String[] values) {
            return values;
        }

        public void fail() {
            throw new IllegalStateException("no");
        }
    }

    /** How a proxy is called. */
    public interface Calls {
        int plus(int a, int b);

        String[] echo(String[] values);

        void fail();
    }

    static void call_session(String address) throws Exception {
        MqClient watcher = client(address, new EventLoop());
        ServiceBootstrap service = new ServiceBootstrap();
        service.serviceName("MyRpc").serviceAddress(address).connectionCount(2);
        service.addModule("other", new Service());
        service.addModule(JavaSession.Calls.class.getName(), new Service());
        service.start();
        until("the service", () -> consumerCount(watcher, "MyRpc") == 2);
        ClientBootstrap bootstrap = new ClientBootstrap();
        bootstrap.serviceName("MyRpc").serviceAddress(address);
        RpcInvoker rpc = bootstrap.invoker();
        Request plus = new Request().module("other").method("plus").params(1, 2);
        check(3, rpc.invokeSync(Integer.class, plus));
        Calls calls = bootstrap.createProxy(Calls.class);
        check(7, calls.plus(3, 4));
        String[] words = {"a", "\u4e2d\u6587", ""};
        check(Arrays.asList(words), Arrays.asList(calls.echo(words)));
        try {
            calls.fail();
            throw new AssertionError("fail");
        } catch (RuntimeException error) {
            if (!error.toString().contains("no")) throw error;
        }
        step("called");
    }

    static void restart_session(String address) throws Exception {
        Broker broker = new Broker(address);
        Producer producer = new Producer(broker);
        producer.declareTopic("MyTopic");
        BlockingQueue<Received> received = new LinkedBlockingQueue<>();
        consumer(broker, "MyTopic", null, received);
        check(200, producer.publish(message("MyTopic", null, "before")).getStatus());
        check("before", take(received).message.getBodyString());
        step("connected");
        EventLoop loop = new EventLoop();
        MqClient[] watcher = new MqClient[1];
        until(
                "the reader after the restart",
                () -> {
                    try {
                        if (watcher[0] == null) watcher[0] = client(address, loop);
                        return consumerCount(watcher[0], "MyTopic") >= 1;
                    } catch (IOException error) {
                        watcher[0] = null;
                        return false;
                    }
                });
        until("a route", () -> published(producer, "after"));
        String body = take(received).message.getBodyString();
        while (body.equals("before")) { // killed at once, the broker may hand it out again
            body = take(received).message.getBodyString();
        }
        check("after", body);
    }

    static boolean published(Producer producer, String body) throws Exception {
        try {
            Message sent = producer.publish(message("MyTopic", null, body));
            return sent != null && sent.getStatus() == 200;
        } catch (IOException | RuntimeException error) {
            return false;
        }
    }

    /** Two brokers, of which the second reports to the first, which alone is known here. */
    static void two_session(String first, String second) throws Exception {
        Broker broker = new Broker(first);
        Producer producer = new Producer(broker);
        List<String> both = new ArrayList<>(new TreeSet<>(Arrays.asList(first, second)));
        until("both brokers", () -> servers(producer).equals(both));
        producer.declareTopic("MyTopic");
        BlockingQueue<Received> received = new LinkedBlockingQueue<>();
        consumer(broker, "MyTopic", null, received);
        EventLoop loop = new EventLoop();
        MqClient[] watchers = {client(first, loop), client(second, loop)};
        for (MqClient watcher : watchers) {
            until("readers", () -> consumerCount(watcher, "MyTopic") == 1);
        }
        TreeSet<String> bodies = new TreeSet<>();
        for (MqClient watcher : watchers) {
            watcher.produce(message("MyTopic", null, "at " + both.get(bodies.size())));
            bodies.add(take(received).message.getBodyString());
        }
        check(2, bodies.size());
        step("both");
        until("the second broker has left", () -> servers(producer).equals(Arrays.asList(first)));
        until("a message", () -> published(producer, "left"));
        check("left", take(received).message.getBodyString());
        step("one");
        until("the second broker is back", () -> servers(producer).equals(both));
    }

    /** The addresses that the client would send to. */
    static List<String> servers(Producer producer) throws Exception {
        TreeSet<String> found = new TreeSet<>();
        producer.setAdminServerSelector(
                new ServerSelector() {
                    @Override
                    public ServerAddress[] select(BrokerRouteTable table, Message message) {
                        for (ServerInfo server : table.serverTable().values()) {
                            found.add(server.serverAddress.address);
                        }
                        return null;
                    }
                });
        try {
            producer.queryTopic("MyTopic");
        } catch (IOException | RuntimeException error) {
            // Only the table is of interest; a pool that is being closed fails in many ways.
        }
        return new ArrayList<>(found);
    }

    public static void main(String[] arguments) {
        System.setOut(System.err);
        try {
            String[] addresses = Arrays.copyOfRange(arguments, 1, arguments.length);
            Class<?>[] types = new Class<?>[addresses.length];
            Arrays.fill(types, String.class);
            JavaSession.class
                    .getDeclaredMethod(arguments[0] + "_session", types)
                    .invoke(null, (Object[]) addresses);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
        TEST.println("done");
        TEST.flush();
        System.exit(0); // its threads never end by themselves
    }
}
