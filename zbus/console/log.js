// The log of a topic over its partitions, in order of time: pages of it, searches, and what is downloaded.
//
// A place is an offset for each partition. Each partition is in order of time, so a page is made by taking the
// newest (or oldest) message that any of them has, again and again.

import { PREVIEW_BYTES, ask } from "./api.js"

export const FOUND_MAX = 1_000
const SCANNED = 10_000 // messages that one request looks at
const AT_ONCE = 500 // messages of one request of a download
export const DOWNLOAD_BYTES_MAX = 64 * 2 ** 20

/** One search of a partition: `next` is where to go on, undefined at the end. */
async function look(params, options) {
  const cut = { cut: PREVIEW_BYTES, ...params }
  const reply = await ask("read", cut, { ...options, headers: { accept: "application/json" } })
  const [first, end, scanned] = ["first", "end", "scanned"].map(name => Number(reply.headers.get(name)))
  const next = reply.headers.get("next")
  return { rows: await reply.json(), first, end, scanned, next: next === null ? undefined : Number(next) }
}

export const inOrder = (a, b) => a.timestamp - b.timestamp || a.partition - b.partition || a.offset - b.offset

/** A page of the log: `count` messages of these partitions, from the newest on or from the oldest on, beginning at
 * the place `from` (else at the end where that order begins) or at a time. They are between the places `from` and `to`. */
export async function pageOf(topic, partitions, { newest, from, since }, count) {
  const few = partitions.length > 1 ? Math.min(count, Math.ceil((2 * count) / partitions.length) + 1) : count
  const heads = partitions.map(partition => ({ partition, rows: [], next: from?.[partition], at: from?.[partition] }))
  const fill = async head => {
    const params = { topic, partition: head.partition, newest: newest ? 1 : 0, offset: head.next, count: few }
    const found = await look({ ...params, since: head.next === undefined ? since : undefined })
    Object.assign(head, found, { open: found.next !== undefined, stored: found.end - found.first })
    head.at ??= found.rows.length ? found.rows[0].offset + (newest ? 1 : 0) : found.end
    head.from ??= head.at
  }
  await Promise.all(heads.map(fill))
  const rows = []
  for (;;) {
    let best = null
    for (const head of heads) {
      while (head.open && !head.rows.length) await fill(head)
      if (head.rows.length && (!best || inOrder(head.rows[0], best.rows[0]) < 0 === !newest)) best = head
    }
    if (!best || rows.length === count) {
      const [begin, to] = ["from", "at"].map(key => Object.fromEntries(heads.map(head => [head.partition, head[key]])))
      const stored = heads.reduce((sum, head) => sum + head.stored, 0)
      return { rows, from: begin, to, more: best !== null, stored, first: heads[0].first, end: heads[0].end }
    }
    const row = best.rows.shift()
    rows.push(row)
    best.at = newest ? row.offset : row.offset + 1
  }
}

/** How a search of these partitions begins, that have `all` messages. */
export const beginning = (partitions, all) => ({ rows: [], scanned: 0, all, left: partitions.map(partition => ({ partition })) })

/** Look for messages that fit `wanted`, in turn in each partition, and go on where `state` is. `each` is called with the
 * state after each request: what was found, in no order, how many were looked at and are `all`, and what is `left`. Ends
 * when nothing is left, or that much was found. */
export async function search(topic, wanted, state, signal, each) {
  const room = state.rows.length + FOUND_MAX
  while (state.left.length && state.rows.length < room) {
    const head = state.left[0]
    const params = { topic, partition: head.partition, offset: head.next, count: room - state.rows.length }
    const found = await look({ ...wanted, ...params, scan: SCANNED }, { signal })
    const more = found.next === undefined ? 0 : wanted.newest ? found.next - found.first : found.end - found.next
    const left = state.left.slice(1)
    if (more) left.push({ partition: head.partition, next: found.next, more })
    const scanned = state.scanned + found.scanned
    const known = left.every(one => one.more !== undefined)
    const all = known ? left.reduce((sum, one) => sum + one.more, scanned) : Math.max(state.all, scanned)
    state = { rows: [...state.rows, ...found.rows], scanned, all, left }
    each(state)
  }
}

/** These messages with whole bodies as JSON lines, the oldest first: [lines, how many there are]. Ends when they are
 * too many to be held. */
export async function linesOf(topic, rows) {
  const lines = []
  let bytes = 0
  let done = 0
  for (const { partition, offset, count } of runsOf(rows.toSorted(inOrder)))
    for (let at = offset; at < offset + count; ) {
      if (bytes > DOWNLOAD_BYTES_MAX) return [lines, done]
      const params = { topic, partition, offset: at, count: Math.min(offset + count - at, AT_ONCE) }
      const reply = await ask("read", params, { headers: { accept: "application/x-ndjson" } })
      const found = Number(reply.headers.get("count"))
      const text = await reply.text()
      lines.push(text)
      bytes += text.length
      done += found
      at += found
    }
  return [lines, done]
}

/** Neighbours in the log that are neighbours here. */
function runsOf(rows) {
  const runs = []
  for (const { partition, offset } of rows) {
    const last = runs.at(-1)
    if (last?.partition === partition && last.offset + last.count === offset) last.count++
    else runs.push({ partition, offset, count: 1 })
  }
  return runs
}
