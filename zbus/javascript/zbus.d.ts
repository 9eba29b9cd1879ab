// The client of the zbus broker for browsers, Node, Deno and Bun: what each part promises.
//
// Names that end in `Ms` are milliseconds. What is null or undefined is as if it were not given. Where nothing else
// is said, a method raises `Refused` if the broker refuses the request, `ConnectionLost` or `Timeout`.

/** The version of this client. The broker must have the same minor version below 1.0, else the same major one. */
export declare const VERSION: string

/** Text and bytes are sent as they are, anything else as JSON (at most `message_bytes_max`, 1 MiB by default). */
export type Body = unknown

/** Header lines of a message: at most 40, and 2 KiB. */
export type Headers = Record<string, string | number | boolean | null | undefined>

/** An offset, offsets of all partitions, or the first message that was stored then or later. */
export type Start = "earliest" | "latest" | number | number[] | Date | (string & {})

export interface Options {
  /** Access token, sent with every request. A page that is logged in needs none: its cookie counts. */
  token?: string
  /** How long a request may take, connecting again included: 30,000. */
  timeoutMs?: number
  /** One attempt to connect: 5,000. */
  connectTimeoutMs?: number
  /** How often in a row it is tried to connect, and how often a request is sent again: Infinity, within its time. 0: never. */
  retries?: number
  /** The pause between attempts: 50, doubles up to `backoffMaxMs` (2,000), and up to a half of it random on top. */
  backoffMs?: number
  backoffMaxMs?: number
  /** The class of WebSockets, where there is no global one. */
  WebSocket?: unknown
  /** Is called whenever a connection is open or lost: that of requests, of a consumer, a watch or a service. */
  onState?: (state: "open" | "lost", error?: Error) => void
}

/** What a topic and a group are to be: see `declare` in docs/reference/zbus.md. */
export interface Declared {
  start?: Start
  ack?: boolean
  exclusive?: boolean
  temporary?: boolean
  paused?: boolean
  leaseMs?: number
  window?: number
  filter?: string
  order?: "key" | "priority" | "none"
  maxAttempts?: number | "none"
  /** The first pause, or the first and the longest one. */
  backoffMs?: number | [number, number] | "none"
  deadLetter?: string
  onLoss?: "keep" | "front"
  keepAttempts?: boolean
  rate?: number | "none"
  oneBatch?: boolean
  retain?: boolean
  pushUrl?: string
  pushSecret?: string
  pushConcurrency?: number
  pushTimeoutMs?: number
  startCopy?: string
  partitions?: number
  /** "none": when partitions become more, consumers need not finish older messages of a key first. */
  partitionsOrder?: "key" | "none"
  durability?: "memory" | "os" | "disk"
  retentionMs?: number
  retentionBytes?: number
  retentionCount?: number
  retentionDone?: boolean
  dedupeMs?: number
  dedupeLive?: boolean
  settledMs?: number
  /** The newest message of each key stays for ever, older ones go: `request("get", { topic, key })`. */
  compact?: boolean
  /** How long the newest message of a key stays that has no body: a day, if nothing else is said. */
  compactTombstoneMs?: number
  rpc?: boolean
  senderHeaders?: boolean
  /** The JSON Schema that bodies have to fit; "none": any body. */
  schema?: object | string
  schemaCompatibility?: "backward" | "forward" | "full" | "none"
}

/** Where and when messages are put, and with which labels: see `produce` in docs/reference/zbus.md. */
export interface Put {
  idempotencyKey?: string
  expectedOffset?: number
  /** At most 127 bytes. */
  tag?: string
  /** At most 1,024 bytes: messages of one key are in one partition, in order. */
  key?: string
  partition?: number
  front?: boolean
  delayMs?: number
  deliverAtMs?: number
  ttlMs?: number
  /** 0 to 9: groups with `order: "priority"` take the highest first. */
  priority?: number
  maxAttempts?: number
  /** At most 39 visible ASCII characters. A produce with an id of your own is not sent again by itself. */
  id?: string
  cron?: string
  cronZone?: string
  headers?: Headers
  timeoutMs?: number
}

/** A message of a batch, with labels of its own. */
export interface Labelled {
  body?: Body
  id?: string
  tag?: string
  key?: string
  priority?: number
  headers?: Headers
}

export interface Stored {
  /** Of the first message. */
  offset: number
  partition: number
  durability: "memory" | "os" | "disk" | "replicated"
  id: string
  count: number
  /** How many were there before: they are not stored again. */
  duplicates: number
}

export interface Reply {
  status: number
  id: string
  headers: Record<string, string>
  /** JSON if it is of that type, else text, or bytes that are no UTF-8. */
  body: any
}

export interface RequestOptions {
  body?: Body
  headers?: Headers
  timeoutMs?: number
  /** Whether it may be sent again: true, but for produce, cancel, fire, reschedule, redrive and route. */
  again?: boolean
}

/** A message as it was delivered. */
export declare class Message {
  readonly topic: string
  readonly group: string
  readonly partition: number
  readonly offset: number
  readonly id: string
  readonly tag: string
  readonly key: string
  readonly timestampMs: number
  /** How often it was delivered before. */
  readonly retry: number
  /** How many messages the topic dropped before this one was read. */
  readonly skipped: number
  readonly headers: Record<string, string>
  readonly settled: boolean
  get body(): Uint8Array
  get text(): string
  json(): any
  /** Done: it does not come again. Resolves when that is durable. A message that is settled is left
   * alone, and so is one of a watch, or of a group without acknowledgements: nothing is sent. The same holds below. */
  ack(): Promise<void>
  /** To come again: first, at the end (`front: false`), or after `delayMs`. `NotFound`: it is not leased any more. */
  nack(options?: { delayMs?: number; front?: boolean }): Promise<void>
  /** To be leased that long from now. From then on the consumer does not extend it. */
  extend(leaseMs?: number): Promise<void>
}

export interface ConsumeOptions {
  /** Whether asking for the next message acknowledges the one before: true. */
  autoAck?: boolean
  /** The loop ends when no message has come for this long. Without it there is no end. */
  timeoutMs?: number
  /** Messages that are fetched at once: 100, or half of the group's window; 1 if the group has no acknowledgements. */
  batch?: number
  /** What becomes of failures: the consumer declares it first, and a group with acknowledgements. */
  retry?: Declared
  partition?: number
  leaseMs?: number
  standby?: boolean
}

/** The messages of a group, one after another: `for await (const message of consumer)`. It belongs to one loop. */
export declare class Consumer implements AsyncIterableIterator<Message> {
  private constructor()
  [Symbol.asyncIterator](): this
  next(): Promise<IteratorResult<Message, undefined>>
  return(): Promise<IteratorResult<Message, undefined>>
  /** Leave the group. The current message, and those not handed out, are given back. */
  close(): Promise<void>
}

/** The messages of a topic, one after another. */
export interface Watch extends AsyncIterableIterator<Message> {
  close(): Promise<unknown>
}

export type Method = (...params: any[]) => unknown

export interface Service {
  /** No more calls are taken, and those under way are answered. */
  close(): Promise<void>
  /** Ends with the service; raises what ended it. */
  done: Promise<void>
}

/** A client of one broker, which any number of tasks may share. It connects at its first request. Of several URLs, such
 * as those of a cluster's nodes, or of a broker and its standby, the next one is tried when one does not answer. */
export declare class Zbus {
  /** `url` is `http://host:port` or `https://host:port`: where this module came from, else http://127.0.0.1:15555. */
  constructor(url?: string | readonly string[], options?: Options)
  /** Look once whether the broker is there: `Forbidden` if it does not know the token, `ProtocolError` if it is none,
   * or of another version. */
  connect(): Promise<this>
  /** Ends consumers, watches, services and requests. */
  close(): Promise<void>
  /** Any command of the broker. Names of parameters are the broker's, or the same in camel case. */
  request(cmd: string, params?: Record<string, unknown>, options?: RequestOptions): Promise<Reply>
  /** Create or change a topic or a group; its document. */
  declare(topic: string, group?: string, options?: Declared): Promise<any>
  /** The document of a group, a topic, or the server. */
  query(topic?: string, group?: string): Promise<any>
  remove(topic: string, group?: string): Promise<void>
  /** Move a group; its document. */
  seek(topic: string, group: string, start: Start, options?: { partition?: number }): Promise<any>
  /** Store a message. Resolves when it is durable; sent again after a loss, it is stored once. */
  produce(topic: string, body?: Body, options?: Put): Promise<Stored>
  /** Store messages at consecutive offsets of one partition: all, or none. */
  produceMany(topic: string, messages: Iterable<string | ArrayBuffer | ArrayBufferView | Labelled>, options?: Put): Promise<Stored>
  /** Call a method of a service, once; its answer, of JSON, or text or bytes of another type. Raises `RpcError` for an
   * error of the service, `Refused` with 502 or 504 if none answered. */
  call(
    topic: string,
    method: string,
    params?: unknown[],
    options?: { module?: string; named?: Record<string, unknown>; headers?: Headers; timeoutMs?: number },
  ): Promise<any>
  /** A consumer of a group, with a connection of its own. `group` is the one named like the topic. */
  consume(topic: string, group?: string, options?: ConsumeOptions): Consumer
  /** All messages of a topic, without a group. Resolves when the watch has begun; it goes on where it was when its
   * connection breaks. */
  watch(topic: string, start?: Start, options?: { filter?: string; partition?: number }): Promise<Watch>
  /** Answer calls of a topic, at most `concurrency` (16) at once. `methods` are functions by name, and objects of them by
   * module. What one throws is the caller's answer, and is given to `onError` (console.error). */
  serve(
    topic: string,
    methods: Record<string, Method | Record<string, Method>>,
    options?: { concurrency?: number; onError?: (error: unknown) => void },
  ): Promise<Service>
}

/** The base of all errors of this module. What cannot be sent at all is a TypeError. */
export declare class ZbusError extends Error {}

/** The broker refused the request with this sentence: nothing was done. */
export declare class Refused extends ZbusError {
  readonly status: number
  readonly headers: Record<string, string>
  readonly retryAfterMs: number | null
}

/** 401, 403: the token is not known, or does not allow it. */
export declare class Forbidden extends Refused {}
/** 404: topic, group or message is not there, or is not leased any more (`headers.reason` is `not-leased`). */
export declare class NotFound extends Refused {}

/** The service answered with an error. */
export declare class RpcError extends ZbusError {
  readonly status: number
  readonly body: any
}

/** The broker cannot be reached, or the connection broke. `unknown`: the request may have been done. */
export declare class ConnectionLost extends ZbusError {
  readonly unknown: boolean
}
export declare class Timeout extends ConnectionLost {}
/** What answers is not a zbus broker, or one of another version. */
export declare class ProtocolError extends ZbusError {}

/** `fetch` with an end of `timeoutMs` (30,000) and with errors of this module. */
export declare function send(url: string, options?: RequestInit & { timeoutMs?: number }): Promise<Response>
/** The error of a Response whose status is 400 or more. */
export declare function refused(reply: Response): Promise<Refused>
/** One stream of server-sent events, until it ends. Raises `ConnectionLost` if nothing comes for `silenceMs` (45,000). */
export declare function events(
  url: string,
  options?: RequestInit & { silenceMs?: number },
): AsyncGenerator<{ type: string; data: string; id?: string }>
