// What a program written for zbus.js 0.11 does, in the words of that client, unmodified:
// node zbusjs_session.js <zbus.js> <tcp|websocket> <session> <address> ...
// Over WebSocket the same file is run as a browser runs it, with the WebSocket of the package `ws`.
// Lines on the standard output tell the test how far it is; `step` waits for its standard input.

"use strict";

const assert = require("assert");
const fs = require("fs");
const readline = require("readline");
const vm = require("vm");

const WAIT_MS = 20000;
const [, , script, transport, session, ...addresses] = process.argv;
const NAMES = "MqClient Broker Producer Consumer RpcInvoker RpcProcessor Protocol logger Logger";

function load() {
  if (transport === "tcp") return require(script);
  const world = {
    window: { WebSocket: require("ws") },
    // What comes out of the socket, and the clock; all else is the script's own.
    ...{ TextEncoder, TextDecoder, Uint8Array, Int8Array, ArrayBuffer, console },
    ...{ setInterval, clearInterval, setTimeout, clearTimeout },
  };
  world.WebSocket = world.window.WebSocket;
  const names = NAMES.split(" ").map((name) => `${name}: ${name}`);
  const source = fs.readFileSync(script, "utf8") + `\n;({${names.join(", ")}})`;
  return vm.runInNewContext(source, world);
}

const zbus = load();
zbus.logger.level = zbus.Logger.ERROR;
console.log = console.error; // the standard output is the test's
const input = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

function say(text) {
  process.stdout.write(text + "\n");
}

async function step(name) {
  say(name);
  assert.strictEqual((await input.next()).value, "go on");
}

/** Wait until something that happens elsewhere is true. */
async function until(what, holds) {
  for (let left = WAIT_MS / 20; left > 0; left--) {
    if (await holds()) return;
    await new Promise((done) => setTimeout(done, 20));
  }
  throw new Error("it never came true: " + what);
}

async function connected(address) {
  const client = new zbus.MqClient(address);
  await client.connect();
  return client;
}

async function broker(...trackers) {
  const found = new zbus.Broker(trackers.join(";"));
  await found.ready();
  return found;
}

/** What comes in, in its order. */
class Inbox {
  constructor() {
    this.messages = [];
  }
  async take() {
    await until("a message", () => this.messages.length > 0);
    return this.messages.shift();
  }
}

function consumer(found, ctrl) {
  const inbox = new Inbox();
  const reader = new zbus.Consumer(found, ctrl);
  reader.messageHandler = (message) => inbox.messages.push(message);
  reader.start();
  return inbox;
}

function readers(found, topic) {
  const infos = found.routeTable.topicTable[topic] || [];
  return infos.map((info) => info.consumerCount);
}

function plain(value) {
  return JSON.parse(JSON.stringify(value)); // of another world, for `deepStrictEqual`
}

const SESSIONS = {
  async client(address) {
    const client = await connected(address);
    const topic = await client.declare("MyTopic");
    assert.strictEqual(topic.topicName, "MyTopic");
    assert.strictEqual(topic.serverAddress.address, address);
    const group = { topic: "MyTopic", consumeGroup: "g", groupFilter: "a.*" };
    const info = await client.declare(group);
    assert.deepStrictEqual([info.groupName, info.filter], ["g", "a.*"]);
    const message = { topic: "MyTopic", tag: "a.b", body: "hello 中文", myHeader: "x" };
    const sent = await client.produce(message);
    assert.strictEqual(sent.status, 200);
    assert.ok(Number(sent.body) > 1600000000000);
    const found = await client.consume("MyTopic");
    assert.strictEqual(found.status, 200);
    assert.strictEqual(found.body, "hello 中文");
    assert.deepStrictEqual([found.tag, found.myHeader], ["a.b", "x"]);
    assert.strictEqual((await client.consume({ topic: "MyTopic", consumeGroup: "g" })).tag, "a.b");
    await client.produce({ topic: "MyTopic", body: { n: 1, t: "中" } });
    assert.deepStrictEqual(plain((await client.consume("MyTopic")).body), { n: 1, t: "中" });
    const bytes = new Uint8Array([104, 105]);
    await client.produce({ topic: "MyTopic", body: bytes });
    assert.strictEqual((await client.consume("MyTopic")).body, "hi");
    assert.strictEqual((await client.query("MyTopic")).messageDepth, 3);
    assert.deepStrictEqual(Object.keys((await client.tracker()).serverTable), [address]);
    assert.strictEqual((await client.produce({ topic: "unknown", body: "x" })).status, 404);
    assert.strictEqual((await client.query("unknown")).error.message.slice(0, 4), "404:");
    assert.ok((await client.ssl(address)).error.message.includes("Not Found"));
    client.send({ cmd: "heartbeat" });
    assert.strictEqual((await client.empty("MyTopic")).status, 200);
    assert.strictEqual((await client.remove("MyTopic")).status, 200);
    client.close();
  },

  async queue(address) {
    const found = await broker(address);
    const producer = new zbus.Producer(found);
    await producer.declare("MyTopic");
    const all = consumer(found, "MyTopic");
    await until("a reader", () => readers(found, "MyTopic")[0] === 1);
    const other = await broker(address);
    const filter = { topic: "MyTopic", consumeGroup: "some", groupFilter: "a.*;x" };
    await (await connected(address)).declare(filter);
    const some = consumer(other, { topic: "MyTopic", consume_group: "some" });
    await until("two readers", () => readers(found, "MyTopic")[0] === 2);
    for (const tag of ["a.b", "b.b", "x"]) {
      const sent = await producer.publish({ topic: "MyTopic", tag, body: tag });
      assert.strictEqual(sent.status, 200);
    }
    for (const tag of ["a.b", "b.b", "x"]) assert.strictEqual((await all.take()).body, tag);
    for (const tag of ["a.b", "x"]) assert.strictEqual((await some.take()).body, tag);
    await producer.declare({ topic: "Alone", groupMask: 16 });
    const alone = consumer(await broker(address), "Alone");
    await until("the one reader", () => readers(found, "Alone")[0] === 1);
    assert.strictEqual((await (await connected(address)).consume("Alone")).status, 401);
    await producer.publish({ topic: "Alone", body: "mine" });
    assert.strictEqual((await alone.take()).body, "mine");
  },

  async call(address) {
    const processor = new zbus.RpcProcessor();
    const service = {
      plus: (a, b) => a + b,
      echo: (value) => value,
      fail: () => {
        throw "no";
      },
    };
    processor.addModule(service, "index");
    processor.addModule(service, "other");
    const serving = await broker(address);
    const consumer = new zbus.Consumer(serving, { topic: "MyRpc", topicMask: 3 });
    consumer.messageHandler = processor.messageHandler;
    consumer.start();
    await until("the service", () => readers(serving, "MyRpc")[0] === 1);
    const rpc = new zbus.RpcInvoker(await broker(address), "MyRpc");
    rpc.module = "index";
    assert.strictEqual(await rpc.plus(1, 2), 3);
    const call = { module: "index", method: "echo", params: [{ a: [1, null, "中"] }] };
    assert.deepStrictEqual(plain(await rpc.invoke(call)), { a: [1, null, "中"] });
    for (const [method, text] of [
      ["fail", "no"],
      ["nothing", "method(index:nothing) not found"],
    ]) {
      const failed = rpc.invoke({ module: "index", method, params: [] });
      await assert.rejects(failed, (error) => error === text);
    }
    await step("called");
  },

  async restart(address) {
    const found = await broker(address);
    const producer = new zbus.Producer(found);
    await producer.declare("MyTopic");
    const inbox = consumer(found, "MyTopic");
    await until("a reader", () => readers(found, "MyTopic")[0] === 1);
    await producer.publish({ topic: "MyTopic", body: "before" });
    assert.strictEqual((await inbox.take()).body, "before");
    await step("connected");
    await until("a reader after the restart", () => readers(found, "MyTopic")[0] >= 1);
    await producer.publish({ topic: "MyTopic", body: "after" });
    let body = "before"; // killed at once, the broker may hand it out again
    while (body === "before") body = (await inbox.take()).body;
    assert.strictEqual(body, "after");
  },

  async two(first, second) {
    const found = await broker(first);
    const table = () => Object.keys(found.routeTable.serverTable).sort();
    const both = [first, second].sort();
    await until("both brokers", () => String(table()) === String(both));
    await until("both connections", () => Object.keys(found.clientTable).length === 2);
    const producer = new zbus.Producer(found);
    await producer.declare("MyTopic");
    const inbox = consumer(found, "MyTopic");
    await until("readers", () => String(readers(found, "MyTopic")) === "1,1");
    for (const address of both) {
      await producer.publish({ topic: "MyTopic", body: address }, () => [address]);
    }
    const bodies = [(await inbox.take()).body, (await inbox.take()).body];
    assert.deepStrictEqual(bodies.sort(), both);
    await step("both");
    await until("the second broker has left", () => String(table()) === first);
    await producer.publish({ topic: "MyTopic", body: "left" });
    assert.strictEqual((await inbox.take()).body, "left");
    await step("one");
    await until("the second broker is back", () => String(table()) === String(both));
  },
};

process.on("unhandledRejection", (error) => {
  // Its connections report the broker's end twice, once where nobody can listen.
  console.error("unhandled:", error);
});
process.on("uncaughtException", (error) => console.error("uncaught:", error));

SESSIONS[session](...addresses).then(
  () => {
    say("done");
    process.exit(0); // its timers never end by themselves
  },
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
