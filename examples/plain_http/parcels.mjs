// Produce, consume with acknowledgements, and call a service: fetch and nothing else.
//
//     zbus serve
//     node examples/plain_http/parcels.mjs http://127.0.0.1:15555
//
// The functions run in a page, too, once the option cors_origins lists the page.

const broker = globalThis.process?.argv[2] ?? "http://127.0.0.1:15555";

/** One request. A status from 400 on is a refusal, and its body is a sentence that says why. */
async function ask(path, headers = {}, body = "") {
  const reply = await fetch(broker + path, {method: "POST", headers, body});
  if (reply.status >= 400) throw new Error(await reply.text());
  return reply;
}

/** Store a message. If no reply comes, send it again with the same key: it is stored once. */
async function produce(topic, body, key = crypto.randomUUID()) {
  const reply = await ask(`/${topic}`, {"idempotency-key": key}, body);
  return reply.headers.get("durability");
}

/** Give each message of a group to `work`, and acknowledge it when `work` is done. */
async function consume(topic, group, work, waitMs) {
  for (;;) {
    const reply = await ask(`/${topic}/${group}?cmd=consume&timeout=${waitMs}`);
    if (reply.status === 204) return; // nothing came in that time; a worker would ask again
    const offset = reply.headers.get("offset");
    const partition = reply.headers.get("partition") ?? 0;
    const retry = Number(reply.headers.get("retry") ?? 0); // how often it was handed out before
    await work(await reply.text(), retry);
    await ask(`/${topic}/${group}?cmd=ack&offset=${offset}&partition=${partition}`);
  }
}

/** Answer calls for ever. The answer goes to the session that called, under the call's id. */
async function serve(topic, answer) {
  for (;;) {
    const call = await ask(`/${topic}?cmd=consume&timeout=20000`);
    if (call.status === 204) continue;
    const headers = {recver: call.headers.get("sender"), id: call.headers.get("origin_id")};
    await ask("/?cmd=route", headers, answer(await call.text()));
  }
}

await ask("/Parcels/packing?cmd=declare&ack=true&group_lease=30s");
console.log("produced, durability", await produce("Parcels", "two chairs"));
await consume("Parcels", "packing", (body, retry) => console.log("packed", body, retry), 200);

await ask("/Shout?cmd=declare&topic_mask=3");
serve("Shout", text => text.toUpperCase()).catch(console.error);
const answer = await ask("/Shout", {timeout: "5000"}, "hello");
console.log("answered", await answer.text());
globalThis.process?.exit(); // the service waits for its next call
