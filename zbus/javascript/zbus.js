// A client of the zbus broker for pages, Node, Deno and Bun. zbus.d.ts says what each part promises.
//
// Requests are JSON objects on a WebSocket. When it breaks, those that may be repeated are sent again on the
// next one, in their old order. A watch is a stream of events over HTTP, which is resumed where it was.

export const VERSION = "0.1.0"

const WAIT_MS = 20_000 // a pull waits so long at the broker: then a dead connection is noticed
const SILENCE_MS = 45_000 // in a stream of events the broker sends a heartbeat every 15 s
const LEAVE_MS = 5_000 // how long the end of a consumer waits for the broker
const LONG_MS = 2 ** 31 - 1 // the longest that a timer takes
const OPEN_MAX = 10_000 // requests under way on a connection
const OFFSETS_MAX = 380 // in a request: they fit a header line
const EVENT_CHARS_MAX = 1 << 26

// -- errors

export class ZbusError extends Error {
  name = this.constructor.name
}

export class Refused extends ZbusError {
  constructor(status, text = "", headers = {}) {
    super(text.slice(0, 2000).replace(/^\d{3}: /, "") || `The broker answered ${status}.`)
    const wait = headers["retry-after"]
    this.retryAfterMs = wait == null ? null : 1000 * (/^\d{1,6}$/.test(wait) ? wait : 1) // of a proxy: a date
    Object.assign(this, { status, headers })
  }
}

export class Forbidden extends Refused {}
export class NotFound extends Refused {}

export class RpcError extends ZbusError {
  constructor(status, body) {
    super(typeof body === "string" ? body : `The service answered ${status}.`)
    Object.assign(this, { status, body })
  }
}

export class ConnectionLost extends ZbusError {
  constructor(text, unknown = false) {
    super(text)
    this.unknown = unknown
  }
}

export class Timeout extends ConnectionLost {}
export class ProtocolError extends ZbusError {}

const KINDS = { 401: Forbidden, 403: Forbidden, 404: NotFound }
const refusal = (status, text, headers) => new (KINDS[status] ?? Refused)(status, text, headers)

/** Whether waiting may help. */
const passes = error => error instanceof ConnectionLost || [429, 502, 503, 504, 507].includes(error.status)

// -- values

const encoder = new TextEncoder()
const fromBase64 = text => Uint8Array.from(atob(text), each => each.charCodeAt(0))
const isBytes = body => body instanceof ArrayBuffer || ArrayBuffer.isView(body)
const sleep = ms => new Promise(done => setTimeout(done, ms))

/** The promise, or nothing after so long. */
function within(ms, promise, late) {
  return new Promise((done, fail) => {
    const timer = setTimeout(() => done(late?.()), ms)
    promise.then(done, fail).finally(() => clearTimeout(timer))
  })
}

const pauseMs = ({ backoffMs, backoffMaxMs }, failures, error) =>
  Math.max(error?.retryAfterMs ?? 0, Math.min(backoffMaxMs, backoffMs * 2 ** (failures - 1)) * (1 + Math.random() / 2))

function toBase64(bytes) {
  let text = ""
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000))
  return btoa(text)
}

/** `[text or bytes, type]`: what is neither is sent as JSON. */
function encodeBody(body) {
  if (body == null || typeof body === "string") return [body ?? ""]
  if (!isBytes(body)) return [JSON.stringify(body), "application/json"]
  return [ArrayBuffer.isView(body) ? new Uint8Array(body.buffer, body.byteOffset, body.byteLength) : new Uint8Array(body)]
}

/** `leaseMs` is `lease` of the broker; `retentionMs` is one of the few that end with `-ms` there. */
function wireName(name) {
  const words = name.replace(/[A-Z]/g, letter => "-" + letter.toLowerCase())
  return /^(retention|dedupe|settled|compact-tombstone)-ms$/.test(words) ? words : words.replace(/-ms$/, "")
}

const PUT = "idempotencyKey expectedOffset tag key partition front delayMs deliverAtMs ttlMs priority maxAttempts id cron cronZone"
const OF_GROUP =
  "ack leaseMs window filter order maxAttempts backoffMs deadLetter onLoss keepAttempts rate oneBatch retain startCopy"
const among = (names, name) => names.split(" ").includes(name)
const declaredName = name => (name === "start" ? "from" : (among(OF_GROUP, name) ? "group-" : "") + wireName(name))
const valueOf = value => (value instanceof Date ? `time:${value.getTime()}` : Array.isArray(value) ? value.join() : value)

/** The broker decodes %41 in these, wherever they stand. */
const DECODED = ["topic", "consume-group", "tag", "token", "group-filter", "group-start-copy", "group-dead-letter"]
const tokenLine = token => (token ? { token: escaped(token) } : {})
const escaped = text => String(text).replace(/%(?=[\da-f]{2})/gi, "%25")

/** As the broker has them; what is null or undefined is left out. */
function parameters(options, nameOf = wireName) {
  const given = Object.entries(options).filter(([, value]) => value != null)
  return Object.fromEntries(given.map(([name, value]) => [nameOf(name), valueOf(value)]))
}

/** Header lines of a message. With the prefix none is taken for a parameter, whatever its name. */
const ownLines = (headers, type) =>
  parameters({ "content-type": type, ...headers }, name => `zbus-header-${name.toLowerCase()}`)

/** Messages one after another, each as HTTP has it. */
function encodeBatch(messages) {
  const parts = []
  for (const message of messages) {
    const { body, headers, id, tag, key, priority } = typeof message === "string" || isBytes(message) ? { body: message } : message
    const [sent, type] = encodeBody(body)
    const bytes = typeof sent === "string" ? encoder.encode(sent) : sent
    const labels = parameters({ id, tag: tag && escaped(tag), key, priority, ...ownLines(headers, type) }, name => name)
    let head = "POST / HTTP/1.1\r\n"
    for (const [name, value] of Object.entries(labels)) {
      if (/[^!#$%&'*+.^_`|~\w-]/.test(name) || /[\0-\x08\n-\x1f\x7f]/.test(value))
        throw new TypeError(`This cannot be a header line: ${JSON.stringify(`${name}: ${value}`)}`)
      head += `${name}: ${value}\r\n`
    }
    parts.push(encoder.encode(`${head}content-length: ${bytes.length}\r\n\r\n`), bytes)
  }
  const batch = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  parts.reduce((at, part) => (batch.set(part, at), at + part.length), 0)
  return batch
}

// -- HTTP

export async function send(url, { timeoutMs = 30_000, signal, ...rest } = {}) {
  const end = new AbortController()
  const abort = () => end.abort()
  if (signal?.aborted) abort()
  signal?.addEventListener("abort", abort) // and stays: the body is read later
  const request = new Request(url, { ...rest, signal: end.signal })
  const timer = setTimeout(abort, timeoutMs)
  try {
    return await fetch(request)
  } catch (error) {
    if (signal?.aborted) throw error
    if (end.signal.aborted) throw new Timeout(`The broker did not answer within ${timeoutMs} ms.`, true)
    lost()
  } finally {
    clearTimeout(timer)
  }
}

function lost() {
  throw new ConnectionLost("The broker cannot be reached.", true)
}

/** The begin of a body: it may be anybody's, and without end. */
async function textOf(reply) {
  const reader = reply.body?.getReader()
  const decoder = new TextDecoder()
  for (let text = ""; ; ) {
    const { value, done } = (await reader?.read().catch(lost)) ?? { done: true }
    if (done) return text.trim()
    text += decoder.decode(value, { stream: true })
    if (text.length < 2000) continue
    reader.cancel().catch(() => {})
    return text.slice(0, 2000)
  }
}

export async function refused(reply) {
  return refusal(reply.status, await textOf(reply), Object.fromEntries(reply.headers))
}

export async function* events(url, { silenceMs = SILENCE_MS, signal, headers, ...init } = {}) {
  const end = new AbortController()
  const abort = () => end.abort()
  if (signal?.aborted) abort()
  signal?.addEventListener("abort", abort)
  const heard = promise => within(silenceMs, promise, abort)
  const decoder = new TextDecoder()
  let rest = ""
  let event = {}
  try {
    const accept = { accept: "text/event-stream", ...headers }
    const reply = await heard(send(url, { ...init, headers: accept, signal: end.signal, timeoutMs: LONG_MS }))
    if (!reply.ok) throw await refused(reply)
    const type = reply.headers.get("content-type") ?? ""
    if (!type.startsWith("text/event-stream")) throw new ProtocolError(`${url} is no stream of events, but ${type}.`)
    const reader = reply.body.getReader()
    for (;;) {
      const { value, done } = await heard(reader.read())
      if (done) return
      rest += decoder.decode(value, { stream: true })
      if (rest.length > EVENT_CHARS_MAX) throw new ProtocolError("An event is too large.")
      if (!value.includes(10)) continue
      const lines = rest.split("\n")
      rest = lines.pop()
      for (const line of lines) {
        const [, field, text] = /^([^:\r]*):? ?([^\r]*)/.exec(line)
        if (field) event[field] = field === "data" && "data" in event ? `${event.data}\n${text}` : text
        else if (line.length < 2 && Object.keys(event).length) {
          yield { type: event.event ?? "message", data: event.data ?? "", id: event.id }
          event = {}
        }
      }
    }
  } catch (error) {
    if (signal?.aborted || error instanceof ZbusError) throw error
    throw new ConnectionLost("The stream of events broke.")
  } finally {
    signal?.removeEventListener("abort", abort)
    abort()
  }
}

const family = version => version.split(".", version.startsWith("0.") ? 2 : 1).join(".")

/** Which address is tried, and when. A failure is the next one's turn; when all have had theirs, there is a pause. */
class Attempts {
  #options
  #place = 0
  #failures = 0 // in a row

  constructor(options) {
    this.#options = options
  }

  get url() {
    return this.#options.urls[this.#place]
  }

  /** The broker said something. */
  worked() {
    this.#failures = 0
  }

  /** The connection was lost, or could not be made. Whether that is hopeless by now. */
  failed() {
    const { urls, retries } = this.#options
    this.#place = (this.#place + 1) % urls.length
    return ++this.#failures >= (retries + 1) * urls.length
  }

  async pause(error) {
    const rounds = this.#failures / this.#options.urls.length
    if (rounds && Number.isInteger(rounds)) await sleep(pauseMs(this.#options, rounds, error))
  }
}

/** Is there a broker, of a version that fits, which knows the token? A WebSocket does not say why it is refused. */
async function hello(url, { token, connectTimeoutMs }) {
  const reply = await send(`${url}/?cmd=version`, { headers: tokenLine(token), timeoutMs: connectTimeoutMs })
  const text = (await within(connectTimeoutMs, textOf(reply))) ?? "nothing in time"
  const error = refusal(reply.status, text, Object.fromEntries(reply.headers))
  if (passes(error) || [400, 401, 403, 421].includes(reply.status)) throw error
  if (!reply.ok || !/^\d{1,9}\.\d{1,9}\.[\w.+-]{1,40}$/.test(text))
    throw new ProtocolError(`${url} is not a zbus broker: it answered ${reply.status} ${reply.headers.get("content-type")}.`)
  if (family(text) !== family(VERSION))
    throw new ProtocolError(`This client is of version ${VERSION}, the broker of ${text}: use ${url}/_client/zbus.js.`)
}

// -- connections

/** Random hexadecimal digits; crypto.randomUUID is for secure pages alone. */
const random = () => [...crypto.getRandomValues(new Uint8Array(10))].map(each => (each + 256).toString(16).slice(1)).join("")

class Link {
  #options
  #open = new Map() // id: a request that is under way, in the order in which they were made
  #socket = null
  #connecting = false
  #attempts
  #heardMs = 0
  #prefix = random()
  #count = 0
  #closed = false

  constructor(options) {
    this.#options = options
    this.#attempts = new Attempts(options)
  }

  /** The reply. `again`: the request may be repeated. `raw`: a refusal is a reply, too. */
  request(cmd, params, { body, headers, timeoutMs = this.#options.timeoutMs, again = true, raw = false } = {}) {
    timeoutMs = Math.min(timeoutMs, LONG_MS) // more would be none
    return new Promise((resolve, reject) => {
      const id = params.id ?? `${this.#prefix}-${++this.#count}`
      const text = this.#encode(cmd, { ...params, id }, body, headers)
      if (this.#closed) throw new ConnectionLost("This client is closed.")
      if (this.#open.size >= OPEN_MAX) throw new ZbusError(`${OPEN_MAX} requests are under way: wait for some of them.`)
      if (this.#open.has(id)) throw new ZbusError(`A request with the id ${id} is under way.`)
      const call = { id, text, again, raw, attempts: 0, sentMs: 0, untilMs: Date.now() + timeoutMs }
      const timer = setTimeout(() => this.#late(call, timeoutMs), timeoutMs)
      call.end = (error, reply) => {
        clearTimeout(timer)
        this.#open.delete(id)
        if (error) reject(error)
        else resolve(reply)
      }
      this.#open.set(id, call)
      if (this.#socket) this.#send(call)
      else this.#connect()
    })
  }

  /** A request that has no reply; false if it cannot be sent now. */
  tell(cmd, params, body) {
    this.#socket?.send(this.#encode(cmd, params, body))
    return this.#socket !== null
  }

  close() {
    this.#closed = true
    this.#endAll(call => new ConnectionLost("This client was closed.", call.sentMs > 0))
    this.#socket?.close(1000)
    this.#socket = null
  }

  #encode(cmd, params, body, headers) {
    const [sent, type] = encodeBody(body)
    const part = typeof sent === "string" ? { body: sent || undefined } : { body_base64: toBase64(sent) }
    const named = parameters({ token: this.#options.token, ...params })
    for (const name of DECODED.filter(each => named[each])) named[name] = escaped(named[name])
    return JSON.stringify({ headers: ownLines(headers, type), ...named, cmd, ...part })
  }

  #send(call) {
    call.sentMs = Date.now()
    call.attempts++
    this.#socket.send(call.text)
  }

  #endAll(errorOf) {
    for (const call of [...this.#open.values()]) {
      const error = errorOf(call)
      if (error) call.end(error)
    }
  }

  #late(call, timeoutMs) {
    call.end(new Timeout(`The broker did not answer within ${timeoutMs} ms.`, call.sentMs > 0))
    if (call.sentMs > this.#heardMs) this.#lost(this.#socket, "The broker is silent.")
  }

  async #connect() {
    if (this.#connecting) return
    this.#connecting = true
    for (let error; this.#open.size && !this.#closed; )
      try {
        await this.#attempts.pause(error)
        await hello(this.#attempts.url, this.#options)
        this.#opened(await this.#dial(this.#attempts.url))
        break
      } catch (caught) {
        error = caught
        if (error instanceof ConnectionLost) error.unknown = false
        this.#options.onState?.("lost", error)
        if (this.#attempts.failed() || !passes(error)) this.#endAll(() => error)
      }
    this.#connecting = false
  }

  #dial(url) {
    const { WebSocket, connectTimeoutMs } = this.#options
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url.replace("http", "ws") + "/")
      const timer = setTimeout(() => socket.onclose(socket.close()), connectTimeoutMs)
      socket.onopen = () => (clearTimeout(timer), resolve(socket))
      socket.onerror = socket.onclose = () => {
        clearTimeout(timer)
        reject(new ConnectionLost("The WebSocket was refused. Does a proxy pass it on? Is this page in cors_origins?"))
      }
    })
  }

  #opened(socket) {
    if (this.#closed) return socket.close()
    this.#socket = socket
    socket.onmessage = ({ data }) => this.#received(socket, data)
    socket.onclose = ({ code, reason }) => this.#lost(socket, `The WebSocket was closed: ${code} ${reason}`, code)
    this.#options.onState?.("open")
    for (const call of this.#open.values()) this.#send(call)
  }

  #received(socket, data) {
    this.#heardMs = Date.now()
    this.#attempts.worked()
    let reply
    try {
      reply = Object(JSON.parse(data))
    } catch {
      return this.#lost(socket, "What answers is not a zbus broker.", 1007)
    }
    const { id, status, headers = {}, body = "", body_base64: coded } = reply
    const call = this.#open.get(id)
    if (!call) return
    const told = { id, status, headers, body: coded === undefined ? body : fromBase64(coded) }
    if (status < 400 || call.raw) return call.end(null, told)
    const error = refusal(status, String(told.body), headers)
    const againMs = pauseMs(this.#options, call.attempts, error)
    const may = call.again && call.attempts <= this.#options.retries && Date.now() + againMs < call.untilMs
    if (!may || error.retryAfterMs === null || !passes(error)) return call.end(error)
    setTimeout(() => socket === this.#socket && call === this.#open.get(id) && this.#send(call), againMs)
  }

  #lost(socket, reason, code = 0) {
    if (!socket || socket !== this.#socket) return
    this.#socket = socket.onmessage = socket.onclose = null
    socket.close()
    if (code === 1009) this.#endLargest(reason)
    const over = this.#attempts.failed()
    const broken = [1002, 1007].includes(code)
    const errorOf = unknown => (broken ? new ProtocolError(reason) : new ConnectionLost(reason, unknown))
    this.#endAll(call => (broken || over || (call.sentMs && !call.again)) && errorOf(call.sentMs > 0))
    this.#options.onState?.("lost", errorOf(false))
    if (this.#open.size) this.#connect()
  }

  /** A message was over the limit: sent again, it would break every connection. */
  #endLargest(reason) {
    const sent = [...this.#open.values()].filter(call => call.sentMs)
    sent.sort((one, other) => other.text.length - one.text.length)[0]?.end(refusal(413, reason))
  }
}

// -- consumers

export class Message {
  #raw
  #settle

  /** `settle` is its consumer's; without one there is nothing to acknowledge. */
  constructor(raw, settle) {
    this.#raw = raw
    this.#settle = settle
    this.settled = !settle
    const { topic, consume_group: group = "", partition, offset, id, tag = "", key = "", timestamp: timestampMs } = raw
    const { retry = 0, skipped = 0, headers = {} } = raw
    Object.assign(this, { topic, group, partition, offset, id, tag, key, timestampMs, retry, headers })
    this.skipped = Number(skipped)
  }

  get body() {
    return this.#raw.body_base64 === undefined ? encoder.encode(this.#raw.body ?? "") : fromBase64(this.#raw.body_base64)
  }

  get text() {
    return this.#raw.body ?? new TextDecoder().decode(this.body)
  }

  json() {
    return JSON.parse(this.text)
  }

  async ack() {
    await this.#settle?.(this, "ack", { strict: true })
  }

  async nack({ delayMs, front } = {}) {
    await this.#settle?.(this, "nack", { delayMs, front })
  }

  async extend(leaseMs) {
    await this.#settle?.(this, "extend", { leaseMs })
  }
}

const placeOf = message => `${message.partition}-${message.offset}`

/** Requests name messages of one partition, and OFFSETS_MAX of them. */
function placesOf(messages) {
  const found = []
  for (const partition of new Set(messages.map(each => each.partition))) {
    const offsets = messages.filter(each => each.partition === partition).map(each => each.offset)
    while (offsets.length) found.push({ partition, offset: offsets.splice(0, OFFSETS_MAX) })
  }
  return found
}

export class Consumer {
  #link
  #options
  #where
  #pull
  #leases = true
  #ready = []
  #held = new Map() // place: a message that is leased, or whose acknowledgement is not answered
  #extended = new WeakSet() // by the user
  #current = null
  #done = [] // and not yet acknowledged
  #flushing = null
  #begun = null
  #pulling = null
  #timer = 0
  #error = null
  #closing = null
  #closed

  constructor(link, options, topic, group, { autoAck = true, timeoutMs, retry, batch, ...pull }, closed) {
    this.#link = link
    this.#options = { ...options, autoAck, endMs: timeoutMs ?? Infinity, retry, batch }
    this.#where = { topic, consumeGroup: group }
    this.#pull = pull
    this.#closed = closed
  }

  [Symbol.asyncIterator]() {
    return this
  }

  async next() {
    await (this.#closing ?? (this.#begun ??= this.#begin().catch(error => this.#closing ?? Promise.reject(error))))
    const { endMs, autoAck, batch } = this.#options
    const done = this.#current
    this.#current = null
    if (done && autoAck) this.#acknowledge(done)
    const untilMs = Date.now() + endMs
    while (!this.#ready.length) {
      if (this.#error) throw this.#error
      if (this.#closing) return { value: undefined, done: true }
      await this.#fill(Math.max(0, Math.min(WAIT_MS, untilMs - Date.now())))
      if (!this.#ready.length && Date.now() >= untilMs) return this.return()
    }
    this.#current = this.#ready.shift()
    // What is delivered without a lease is gone if this process ends: only leased messages are fetched ahead.
    if (this.#leases && batch > 1 && this.#ready.length <= batch / 2) this.#fill(Math.min(WAIT_MS, endMs)).catch(() => {})
    return { value: this.#current, done: false }
  }

  /** A loop ends, by `break` or by an error: that is not known, so the current message is given back. */
  async return() {
    await this.close()
    return { value: undefined, done: true }
  }

  close() {
    return (this.#closing ??= this.#close())
  }

  async #close() {
    if (this.#link.tell("unconsume", this.#where))
      await within(LEAVE_MS, Promise.resolve(this.#pulling).catch(() => {}))
    const back = [this.#current, ...this.#ready].filter(each => each && !each.settled)
    if (this.#leases) this.#ready = []
    // What is put in front last comes first.
    const given = placesOf(back).reverse().map(places => this.#ask("nack", places, LEAVE_MS))
    await within(LEAVE_MS, Promise.allSettled([this.#flushing, ...given]))
    clearInterval(this.#timer)
    this.#link.close()
    this.#closed(this)
  }

  async #begin() {
    const { retry } = this.#options
    if (retry) await this.#ask("declare", parameters({ ack: true, ...retry }, declaredName))
    let group = { ack: true, window: 1, leaseMs: 10_000 } // of one that the token may not look at
    try {
      group = (await this.#ask("query", {})).body
    } catch (error) {
      if (!(error instanceof Forbidden)) throw error
    }
    this.#leases = group.ack
    this.#options.batch ??= group.ack ? Math.max(1, Math.min(100, group.window >> 1)) : 1
    const leaseMs = this.#pull.leaseMs ?? group.leaseMs
    if (group.ack) this.#timer = setInterval(() => this.#extend(leaseMs), Math.max(10, leaseMs / 3))
  }

  #ask(cmd, params, timeoutMs) {
    return this.#link.request(cmd, { ...this.#where, ...params }, { timeoutMs })
  }

  #fill(waitMs) {
    return (this.#pulling ??= this.#take(waitMs).finally(() => (this.#pulling = null)))
  }

  async #take(waitMs) {
    const { batch, timeoutMs, retries } = this.#options
    try {
      const params = { ...this.#pull, batch, timeout: waitMs, accept: "application/json" }
      const { status, headers, body } = await this.#ask("consume", params, waitMs + timeoutMs)
      if (status === 200) body.forEach((raw, at) => this.#took({ ...raw, skipped: at ? 0 : headers.skipped }))
      else if (headers.empty === "stopping") await sleep(pauseMs(this.#options, 1))
    } catch (error) {
      if (this.#closing) return
      if (!passes(error) || retries !== Infinity) throw error
      await sleep(pauseMs(this.#options, 5, error))
    }
  }

  #took(raw) {
    const message = new Message(raw, this.#leases ? (...settled) => this.#settle(...settled) : null)
    const place = placeOf(message)
    // What is held comes again when its lease was lost: to that it is the lease that came back.
    if (this.#held.has(place)) return
    if (this.#leases) this.#held.set(place, message)
    this.#ready.push(message)
  }

  #forget(message) {
    if (this.#held.get(placeOf(message)) === message) this.#held.delete(placeOf(message))
  }

  async #settle(message, cmd, params) {
    if (message.settled) return
    if (cmd === "extend") this.#extended.add(message)
    else message.settled = true
    if (cmd === "nack") this.#forget(message) // it may come again before that is answered
    try {
      await this.#ask(cmd, { ...placesOf([message])[0], ...params })
    } catch (error) {
      if (cmd === "ack") message.settled = false // it may be tried again
      throw error
    }
    if (cmd === "ack") this.#forget(message)
  }

  #acknowledge(message) {
    if (message.settled) return
    message.settled = true
    this.#done.push(message)
    const failed = error => (this.#error = error)
    this.#flushing ??= this.#flush().catch(failed).finally(() => (this.#flushing = null))
  }

  /** One request at a time: what is done meanwhile goes with the next. */
  async #flush() {
    while (this.#done.length) {
      const done = this.#done.splice(0)
      for (const places of placesOf(done)) await this.#ask("ack", { ...places, strict: true }, LONG_MS)
      for (const message of done) this.#forget(message)
    }
  }

  async #extend(leaseMs) {
    const held = [...this.#held.values()].filter(each => !each.settled && !this.#extended.has(each))
    const lease = this.#pull.leaseMs
    // A lease that has ended is none that could be kept.
    for (const places of placesOf(held)) this.#ask("extend", { ...places, lease }, leaseMs).catch(() => {})
  }
}

// -- the client

const ONCE = "produce cancel fire reschedule redrive route"

export class Zbus {
  #options
  #link
  #open = new Set() // consumers, watches and services

  constructor(url = import.meta.url.startsWith("http") ? new URL(import.meta.url).origin : "http://127.0.0.1:15555", options = {}) {
    const urls = [url].flat().map(each => {
      const { protocol, origin, pathname, search, username } = new URL(each)
      if (!/^https?:$/.test(protocol) || pathname !== "/" || search || username)
        throw new TypeError("The URL of a broker is http://host:port or https://host:port; give a token as {token}.")
      return origin
    })
    if (!urls.length) throw new TypeError("There is no URL in the list.")
    const times = { timeoutMs: 30_000, connectTimeoutMs: 5_000, backoffMs: 50, backoffMaxMs: 2_000 }
    const known = { ...times, retries: Infinity, WebSocket: globalThis.WebSocket, token: undefined, onState: undefined }
    const other = Object.keys(options).find(name => !(name in known))
    if (other) throw new TypeError(`There is no option '${other}'.`)
    this.#options = { ...known, ...options, urls }
    if (!this.#options.WebSocket)
      throw new TypeError("There is no WebSocket here: start Node 20 with --experimental-websocket, or give {WebSocket}.")
    this.#link = new Link(this.#options)
  }

  async connect() {
    const attempts = new Attempts(this.#options)
    for (let left = this.#options.urls.length; ; attempts.failed())
      try {
        await hello(attempts.url, this.#options)
        return this
      } catch (error) {
        if (!--left || !passes(error)) throw error
      }
  }

  async close() {
    await Promise.allSettled([...this.#open].map(each => each.close()))
    this.#link.close()
  }

  async request(cmd, params = {}, options = {}) {
    return this.#link.request(cmd, params, { again: !among(ONCE, cmd), ...options })
  }

  async declare(topic, group, { schema, ...options } = {}) {
    const given = { topic, consumeGroup: group, ...parameters(options, declaredName) }
    if (schema == null) return (await this.request("declare", given)).body
    if (schema === "none") return (await this.request("declare", { ...given, schema })).body
    const body = typeof schema === "string" ? schema : JSON.stringify(schema)
    return (await this.request("declare", { ...given, schema: "body" }, { body })).body
  }

  async query(topic, group) {
    return (await this.request("query", { topic, consumeGroup: group })).body
  }

  async remove(topic, group) {
    await this.request("remove", { topic, consumeGroup: group })
  }

  async seek(topic, group, start, { partition } = {}) {
    return (await this.request("seek", { topic, consumeGroup: group, from: start, partition })).body
  }

  async produce(topic, body, options) {
    return this.#put(topic, body, options, {})
  }

  async produceMany(topic, messages, options) {
    return this.#put(topic, encodeBatch(messages), options, { "content-type": "application/vnd.zbus.messages" })
  }

  async #put(topic, body, { headers, timeoutMs, ...where } = {}, lines) {
    const other = Object.keys(where).find(name => !among(PUT, name))
    if (other) throw new TypeError(`produce has no option '${other}'.`)
    // The id of the request is its idempotency key, unless there is another. An id of the user may name anything.
    const idempotent = where.id == null && where.idempotencyKey == null && this.#options.retries > 0 ? true : undefined
    const again = idempotent || where.idempotencyKey != null
    const params = { topic, idempotent, ...where, ...lines }
    const reply = await this.#link.request("produce", params, { body, headers, timeoutMs, again })
    const { offset, partition = 0, durability, duplicate = 0, count = 1 } = reply.headers
    const numbers = { offset: Number(offset), partition: Number(partition), count: Number(count) }
    return { ...numbers, duplicates: Number(duplicate), durability, id: reply.id }
  }

  async call(topic, method, params = [], { module = "", named, headers, timeoutMs = this.#options.timeoutMs } = {}) {
    const options = { body: { method, module, params, named }, headers, timeoutMs: timeoutMs + 5_000, again: false, raw: true }
    const { status, headers: lines, body } = await this.#link.request("produce", { topic, timeout: timeoutMs }, options)
    if (status < 400) return body
    throw lines.sender ? new RpcError(status, body) : refusal(status, String(body), lines)
  }

  consume(topic, group = topic, options = {}) {
    const closed = consumer => this.#open.delete(consumer)
    const consumer = new Consumer(new Link(this.#options), this.#options, topic, group, options, closed)
    this.#open.add(consumer)
    return consumer
  }

  async watch(topic, start, { filter, partition } = {}) {
    const end = new AbortController()
    const watch = this.#follow({ topic, from: start, "group-filter": filter, partition }, end.signal)
    const finish = watch.return.bind(watch)
    watch.close = watch.return = () => (end.abort(), finish()) // it may be waiting
    this.#open.add(watch)
    end.signal.onabort = () => this.#open.delete(watch)
    try {
      await watch.next() // it has begun
    } catch (error) {
      end.abort()
      throw error
    }
    return watch
  }

  async *#follow({ from, ...params }, signal) {
    const { token, onState } = this.#options
    const attempts = new Attempts(this.#options)
    let [begun, place, lost, skipped] = [false, null, false, 0]
    for (;;)
      try {
        await hello(attempts.url, this.#options)
        const where = place === null ? { from } : { "last-event-id": place }
        const query = new URLSearchParams(parameters({ cmd: "consume", envelope: "json", ...params, ...where }))
        const stream = events(`${attempts.url}/?${query}`, { headers: tokenLine(token), signal })
        for await (const { type, data, id } of stream) {
          if (lost || !begun) onState?.("open")
          lost = false
          attempts.worked()
          place = id ?? place
          if (!begun) yield (begun = true)
          if (type === "skipped") skipped = data
          if (type === "end") throw refusal(Number(data.slice(0, 3)), data)
          if (type !== "message" || !data) continue
          yield new Message({ ...JSON.parse(data), skipped })
          skipped = 0
        }
        throw new ConnectionLost("The stream of events ended.")
      } catch (error) {
        if (signal.aborted) return
        onState?.("lost", error)
        lost = true
        if (attempts.failed() || !passes(error)) throw error
        await attempts.pause(error)
      }
  }

  async serve(topic, methods, { concurrency = 16, onError = console.error } = {}) {
    const link = new Link(this.#options)
    const answering = new Set()
    let closing = false
    const answer = async ({ id, headers, ...raw }) => {
      const [status, type, body] = await answerOf(methods, new Message(raw), onError)
      // If this connection has gone, the caller has been told so.
      link.tell("route", { topic, id, recver: headers.sender, "origin-status": status, "content-type": type }, body)
    }
    const serve = async () => {
      while (!closing) {
        const params = { topic, batch: concurrency - answering.size, timeout: WAIT_MS, accept: "application/json" }
        const pull = link.request("consume", params, { timeoutMs: WAIT_MS + this.#options.timeoutMs })
        const { status, body } = await pull.catch(error => {
          if (!passes(error)) throw error
          return sleep(pauseMs(this.#options, 1, error)).then(() => ({}))
        })
        for (const call of status === 200 ? body : []) {
          const one = answer(call).finally(() => answering.delete(one))
          answering.add(one)
        }
        if (answering.size >= concurrency) await Promise.race(answering)
      }
    }
    const close = async () => {
      this.#open.delete(service)
      closing = true
      if (link.tell("unconsume", { topic })) await within(LEAVE_MS, service.done.catch(() => {}))
      await Promise.all(answering)
      link.close()
    }
    await this.declare(topic, undefined, { rpc: true })
    const service = { close, done: serve() }
    this.#open.add(service)
    return service
  }
}

/** Status, type and body for a call `{"method", "module", "params", "named"}`. */
async function answerOf(methods, call, onError) {
  try {
    const { method = "index", module = "", params, named } = call.json()
    const inModule = Object.hasOwn(methods, module) ? methods[module] : methods
    const found = Object.hasOwn(inModule, method) ? inModule[method] : null
    if (typeof found !== "function") return [600, "text/plain", `${module && `${module}:`}${method} method not found`]
    const result = await found(...(params ?? []), ...(named ? [named] : []))
    return isBytes(result) ? [200, "application/octet-stream", result] : [200, "application/json", JSON.stringify(result ?? null)]
  } catch (error) {
    onError(error)
    return [600, "text/plain", String(error?.message ?? error)]
  }
}
