// What the client in JavaScript is asked to do, in Node and in a page alike. Each scenario gets the module and the
// address of a broker, and returns what is compared in expected.py. `say` tells how far it has come.

const caught = promise => promise.then(value => ["ok", value], error => [error.name, error.message])

const all = async (messages, of) => {
  const found = []
  for await (const message of messages) found.push(of(message))
  return found
}

export async function bodies({ Zbus }, url) {
  const broker = new Zbus(url)
  await broker.declare("Bodies", "g", { ack: true })
  for (const body of ["", "hällo", { a: [1, null] }, 7, false, new Uint8Array([255, 0]), new Uint8Array([1, 2, 3]).subarray(1)])
    await broker.produce("Bodies", body)
  const found = await all(broker.consume("Bodies", "g", { timeoutMs: 100 }), each => [each.text.replace("\ufffd", "?"), [...each.body].slice(0, 3), each.headers["content-type"] ?? ""])
  await broker.close()
  return found
}

export async function labels({ Zbus }, url) {
  const broker = new Zbus(url)
  await broker.declare("Labels%41", "g%42", { ack: true, filter: "a%43.*" })
  const headers = { "X-A": "ü", delay: "3600000", tag: "no", "user-agent": "me", "content-type": "text/html" }
  const stored = [await broker.produce("Labels%41", "one", { tag: "a%43.1", key: "k", headers, id: "mine" })]
  stored.push(await broker.produceMany("Labels%41", ["two", { body: { n: 3 }, tag: "a%43.3", key: "q", headers: { delay: "ä" } }, new Uint8Array([254])], { tag: "a%43.2" }))
  const found = await all(broker.consume("Labels%41", "g%42", { timeoutMs: 100 }), each => [
    each.id.length > 4 ? "made" : each.id, each.tag, each.key, each.headers["x-a"] ?? "", each.headers.delay ?? "", each.headers["content-type"] ?? "", each.retry,
  ])
  await broker.close()
  return [stored.map(each => [each.offset, each.count, each.duplicates, each.durability]), found]
}

export async function delays({ Zbus }, url) {
  const broker = new Zbus(url)
  await broker.declare("Delays", "g")
  const due = { later: Date.now() + 200, at: Date.now() + 100, now: 0 }
  await broker.produce("Delays", "later", { delayMs: 200 })
  await broker.produce("Delays", "at", { deliverAtMs: due.at })
  await broker.produce("Delays", "gone", { ttlMs: 1, delayMs: 50 })
  await broker.produce("Delays", "now")
  const found = await all(broker.consume("Delays", "g", { timeoutMs: 300 }), each => [each.text, Date.now() >= due[each.text]])
  await broker.close()
  return found.sort()
}

export async function urgent({ Zbus }, url) {
  const broker = new Zbus(url)
  await broker.declare("Urgent", "g", { ack: true, order: "priority" })
  await broker.produce("Urgent", "first", { priority: 1 })
  await broker.produceMany("Urgent", ["batch", { body: "of its own", priority: 9 }], { priority: 5 })
  const found = await all(broker.consume("Urgent", "g", { timeoutMs: 100 }), each => [each.text, each.headers.priority])
  await broker.close()
  return found
}

export async function schemas({ Zbus }, url) {
  const broker = new Zbus(url)
  await broker.declare("Checked", null, { schema: { type: "object", required: ["id"] } })
  const found = [(await broker.produce("Checked", { id: 1 })).count]
  const [name, text] = await caught(broker.produce("Checked", { name: "x" }))
  found.push(name, text.includes("id"))
  await broker.declare("Checked", null, { schema: "none" })
  found.push((await broker.produce("Checked", "anything")).offset)
  await broker.close()
  return found
}

export async function settling({ Zbus }, url) {
  const broker = new Zbus(url)
  const place = ["Settling", "g"]
  await broker.declare("Dead")
  await broker.declare(...place, { ack: true, leaseMs: 100 })
  await broker.produceMany("Settling", ["a", "b", "c"])
  const found = []
  const retry = { maxAttempts: 3, backoffMs: 1, deadLetter: "Dead" }
  for await (const message of broker.consume(...place, { retry })) {
    found.push(message.text + message.retry)
    if (message.text === "a") await message.nack({ delayMs: 1 }) // until it is dead
    if (found.length === 5) break // which gives the current one back, but it was settled
  }
  await new Promise(done => setTimeout(done, 250)) // two leases
  const slow = broker.consume(...place, { timeoutMs: 100, autoAck: false })
  await broker.produce("Settling", "d")
  const { value } = await slow.next()
  await new Promise(done => setTimeout(done, 250)) // the consumer keeps the lease
  await value.ack()
  await slow.close()
  const dead = await all(broker.consume("Dead", "Dead", { timeoutMs: 100 }), each => each.text)
  const { messageCount, leasedCount, deadCount } = await broker.query(...place)
  await broker.close()
  return [found, value.retry, dead, { messageCount, leasedCount, deadCount }]
}

export async function breaking({ Zbus }, url) {
  const broker = new Zbus(url)
  await broker.declare("Breaking", "g", { ack: true })
  await broker.produceMany("Breaking", ["a", "b", "c", "d"])
  for await (const message of broker.consume("Breaking", "g")) if (message.text === "b") break
  const found = await all(broker.consume("Breaking", "g", { timeoutMs: 100 }), each => each.text + each.retry)
  await broker.close()
  return found
}

export async function watching({ Zbus }, url) {
  const broker = new Zbus(url)
  await broker.declare("Watching")
  await broker.produce("Watching", "old", { tag: "x" })
  const latest = await broker.watch("Watching", "latest")
  const earliest = await broker.watch("Watching", "earliest", { filter: "x" })
  const since = await broker.watch("Watching", new Date(0))
  await broker.produce("Watching", "new\r\nline\n", { tag: "x" })
  await broker.produce("Watching", "")
  const first = [await latest.next(), await latest.next(), await earliest.next(), await earliest.next(), await since.next()]
  const waiting = latest.next()
  await latest.close()
  const found = [...first.map(each => each.value.text), (await waiting).done]
  await broker.request("remove", { topic: "Watching" })
  found.push(await caught(earliest.next()), await caught(broker.watch("Nothing")))
  await broker.close()
  return found
}

export async function closing({ Zbus }, url) {
  const broker = new Zbus(url)
  await broker.declare("Closing%41", "g", { ack: true })
  const watch = await broker.watch("Closing%41", "earliest")
  const consumers = [1, 2, 3].map(() => broker.consume("Closing%41", "g"))
  const first = consumers.map(each => each.next())
  await consumers[0].close() // while it begins
  await broker.produce("Closing%41", "x")
  const watched = (await watch.next()).value.topic
  const waiting = watch.next()
  const taken = await Promise.race([first[1], first[2]]) // the other one waits
  await broker.close()
  const ends = [...(await Promise.all([...first, waiting])), await consumers[0].next(), await consumers[1].next(), await watch.next()]
  const other = new Zbus(url)
  const { leasedCount, messageCount } = await other.query("Closing%41", "g")
  await other.close()
  return [watched, taken.value.text, ends.filter(each => each.done).length, leasedCount, messageCount]
}

export async function calling({ Zbus }, url) {
  const broker = new Zbus(url)
  const service = await broker.serve("Rpc", {
    plus: (a, b) => a + b,
    slow: async () => new Promise(done => setTimeout(done, 50, "slow")),
    fails: () => { throw new Error("not today") },
    bytes: () => new Uint8Array([255]),
    nothing: () => {},
    math: { minus: (a, b) => a - b, named: (a, { b }) => a * b },
  }, { onError: () => {} })
  const found = [
    ...(await Promise.all([broker.call("Rpc", "slow"), broker.call("Rpc", "plus", [1, 2])])),
    await broker.call("Rpc", "minus", [1, 2], { module: "math" }),
    await broker.call("Rpc", "named", [3], { module: "math", named: { b: 5 } }),
    [...(await broker.call("Rpc", "bytes"))],
    await broker.call("Rpc", "nothing"),
  ]
  for (const method of ["fails", "absent", "constructor", "toString"]) found.push(await caught(broker.call("Rpc", method)))
  await service.close()
  found.push(await caught(broker.call("Rpc", "plus", [1, 2], { timeoutMs: 50 })))
  found.push(await caught(broker.call("Absent", "plus")))
  await broker.close()
  found.push(await caught(broker.query("Rpc")))
  return found
}

export async function mistakes({ Zbus }, url) {
  const broker = new Zbus(url)
  await broker.declare("Mistakes")
  const found = []
  for (const make of [
    () => new Zbus("ftp://x"), () => new Zbus("http://x/path"), () => new Zbus("http://u:p@x"), () => new Zbus(url, { tokn: 1 }),
    () => new Zbus(url, { WebSocket: null }),
  ])
    try { make(); found.push("made") } catch (error) { found.push(`${error.name}: ${error.message}`) }
  for (const attempt of [
    () => broker.produce("Mistakes", "x", { dealy: 1 }),
    () => broker.produceMany("Mistakes", [{ body: "x", tag: "a\r\ncontent-length: 0" }]),
    () => broker.produceMany("Mistakes", [{ body: "x", headers: { "a b": 1 } }]),
    () => broker.produceMany("Mistakes", []),
    () => broker.produce("Mistakes", "x", { headers: { a: "b\nc" } }),
    () => broker.produce("Mistakes", "x", { idempotencyKey: "ü" }),
    () => broker.produce("Mistakes", 7n),
    () => broker.declare("Mistakes", "g", { dealy: 1 }),
    () => broker.produce("Mistakes", "x".repeat(200_000)),
    () => broker.produce("Mistakes", "x".repeat(1_000_000)),
    () => broker.consume("Mistakes", "absent").next(),
    () => broker.request("nonsense"),
  ])
    found.push((await caught(attempt())).slice(0, 2).join(": "))
  found.push((await broker.request("ping")).status) // the connection goes on
  await broker.close()
  return found
}

/** Over kills of the broker: what was produced, consumed and watched, each once and in order. */
export async function overKills({ Zbus }, url, count, say) {
  const states = new Set()
  const broker = new Zbus(url, { onState: state => states.add(state) })
  await broker.declare("Kills", "g", { ack: true, leaseMs: 3_000 })
  const watch = await broker.watch("Kills", "earliest")
  const [consumed, watched] = [[], []]
  const consuming = (async () => {
    for await (const message of broker.consume("Kills", "g")) {
      consumed.push(message.json())
      if (consumed.length % 100 === 0) say(`consumed ${consumed.length}`)
      if (new Set(consumed).size === count) await message.ack()
      if (new Set(consumed).size === count) break
    }
  })()
  const watching = (async () => {
    for await (const message of watch) if (watched.push([message.offset, message.json()]) >= count) break
  })()
  let next = 0
  const produce = async () => {
    while (next < count) await broker.produce("Kills", next++)
  }
  await Promise.all([produce(), produce(), produce(), produce(), consuming, watching])
  const { messageCount, leasedCount } = await broker.query("Kills", "g")
  const [{ messageDepth }] = [await broker.query("Kills")]
  await broker.close()
  const sorted = numbers => [...numbers].sort((one, other) => one - other)
  const once = numbers => sorted(numbers).every((number, at) => number === at) && numbers.length === count
  return {
    consumed: once(consumed),
    watched: once(watched.map(([, number]) => number)) && watched.every(([offset], at) => offset === at),
    messageDepth, messageCount, leasedCount, states: [...states].sort(),
  }
}
