// A counter that serves people with tickets, in the words of MQCloud's HTTP interface. Others in
// Python (counter.py) serve the same people: each ticket comes to one of them.
//
//   zbus serve --set pages=examples/mqcloud       then open http://127.0.0.1:15555/_pages/
//
// From another address the page needs ?broker=http://127.0.0.1:15555, and its own address has to
// be in the option `cors_origins`.

const TOPIC = "tickets", PRODUCER = "tickets-producer", CONSUMER = "counters";

const asked = new URLSearchParams(location.search);
const broker = asked.get("broker") ?? "";
const pauseMs = Number(asked.get("pause") ?? 1000); // as long as the next one is served
const state = document.getElementById("state");
let requestId = ""; // of who is being served

// A request as $.ajax sends it, with the result of its envelope.
async function ask(method, path, fields) {
  const form = new URLSearchParams(fields);
  const reply = method === "GET"
    ? await fetch(`${broker}${path}?${form}`)
    : await fetch(broker + path, {method, body: form});
  if (reply.status !== 200) throw new Error(`status ${reply.status}`); // busy: later
  const envelope = await reply.json();
  if (envelope.status !== 200) throw new Error(envelope.message);
  return envelope.result;
}

function show(message) {
  const line = document.createElement("li");
  line.textContent = message.message; // never innerHTML: somebody else has sent it
  document.getElementById("served").append(line);
}

// The next one. To ask for it says that those before are done.
async function serve() {
  const next = await ask("GET", "/mq/message",
    {topic: TOPIC, consumer: CONSUMER, maxPullSize: 1, requestId});
  requestId = next.requestId ?? "";
  for (const message of [...next.retryMsgList ?? [], ...next.msgList ?? []]) show(message);
}

document.forms[0].onsubmit = async (event) => {
  event.preventDefault();
  const form = event.target;
  try {
    await ask("POST", "/mq/produce", {producer: PRODUCER, message: form.wish.value});
    form.reset();
  } catch (error) {
    state.textContent = `please try again: ${error.message}`;
  }
};

// Who closes the page has served the last one. Any method will do for an ack.
addEventListener("pagehide", () => {
  if (requestId === "") return;
  const form = new URLSearchParams({topic: TOPIC, consumer: CONSUMER, requestId});
  navigator.sendBeacon(`${broker}/mq/ack?${form}`);
});

async function open() {
  await ask("POST", "/mq/register", {topic: TOPIC, producer: PRODUCER}); // twice is once
  await ask("POST", "/mq/register", {topic: TOPIC, consumer: CONSUMER});
}

let step = open;
for (;;) {
  try {
    await step();
    step = serve;
    state.textContent = "open";
  } catch (error) {
    state.textContent = error.message; // others have all queues, or there is no broker: later
  }
  await new Promise((resolve) => setTimeout(resolve, pauseMs));
}
