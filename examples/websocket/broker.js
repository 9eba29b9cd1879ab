// A zbus broker from a page: JSON objects over one WebSocket.
//
//   const broker = connect("ws://127.0.0.1:15555/");
//   await broker.ask({cmd: "declare", topic: "News"});
//   await broker.ask({topic: "News", body: {title: "It works"}});
//   for await (const message of broker.messages({topic: "News"})) show(message.body);
//
// No heartbeat is needed: the browser answers the broker's pings by itself.

export function connect(url) {
  const socket = new WebSocket(url);
  const waiting = new Map(); // id of a request: its promise
  const prefix = Math.random().toString(36).slice(2, 10);
  let count = 0;

  const opened = new Promise((resolve, reject) => {
    socket.onopen = resolve;
    socket.onclose = (event) => {
      const error = new Error(`closed: ${event.code} ${event.reason}`);
      reject(error);
      for (const promise of waiting.values()) promise.reject(error);
      waiting.clear();
    };
  });
  opened.catch(() => {}); // told by whatever is asked

  socket.onmessage = (event) => {
    const reply = JSON.parse(event.data);
    waiting.get(reply.id)?.resolve(reply);
    waiting.delete(reply.id);
  };

  // The reply to a request: {status, id, headers, body}. Any number may be under way.
  async function ask(request) {
    await opened;
    if (socket.readyState !== WebSocket.OPEN) throw new Error("closed");
    const id = `${prefix}-${++count}`;
    const reply = new Promise((resolve, reject) => waiting.set(id, {resolve, reject}));
    socket.send(JSON.stringify({...request, id}));
    return reply;
  }

  // All messages of a group, one after another, as they come.
  async function* messages(request) {
    for (;;) {
      const reply = await ask({...request, cmd: "consume"});
      if (reply.status === 200) yield reply;
      else if (reply.status !== 204) throw new Error(reply.body);
    }
  }

  return {ask, messages, close: () => socket.close()};
}
