// Every request that the console makes of the broker: documented commands over plain HTTP.

import { ConnectionLost, Refused, refused, send } from "/_client/zbus.js"

export { ConnectionLost as Away, Refused, send }

let whenForbidden = () => {}
export const onForbidden = call => (whenForbidden = call)

/** Present and empty, which takes some settings away. What is merely empty is left out. */
export const NOTHING = Symbol("nothing")

/** Names go into the query, where each legal character of a topic can stand. */
export function address(cmd, params = {}) {
  const said = Object.entries(params).filter(([, value]) => value != null && value !== "")
  const query = said.map(([name, value]) => [name, value === NOTHING ? "" : value])
  return "/?" + new URLSearchParams([["cmd", cmd], ...query])
}

export async function ask(cmd, params, options) {
  const reply = await send(address(cmd, params), options)
  if (!reply.ok) throw await refusal(reply)
  return reply
}

export async function refusal(reply) {
  if (reply.status === 403 && new URL(reply.url).pathname !== "/_rights") whenForbidden() // which asks that
  return refused(reply)
}

const AS_JSON = { headers: { accept: "application/json" } }

export async function document_(cmd, params, options = {}) {
  return (await ask(cmd, params, { ...AS_JSON, ...options })).json()
}

export async function path(url) {
  const reply = await send(url, AS_JSON)
  if (!reply.ok) throw await refusal(reply)
  return reply.json()
}

/** What changes something goes as a POST, so that nobody's history or cache sends it again. */
export const change = (cmd, params, body = "") => ask(cmd, params, { method: "POST", body })

/** The first and the next offset of a partition. */
export async function ends(topic, partition) {
  const reply = await ask("read", { topic, partition, count: 1, cut: 0 }, AS_JSON)
  return { first: Number(reply.headers.get("first")), end: Number(reply.headers.get("end")) }
}

export const PREVIEW_BYTES = 512

/** Messages from `offset` on and before `end`, their bodies cut. A reply of the broker has so much
 * and no more, so it may take several. */
export async function messages(topic, partition, offset, end, cut = PREVIEW_BYTES) {
  const found = []
  while (offset < end) {
    const params = { topic, partition, offset, count: Math.min(end - offset, 1000), cut }
    const some = await document_("read", params)
    if (!some.length) break
    found.push(...some)
    offset = some[some.length - 1].offset + 1
  }
  return found.filter(each => each.offset < end)
}

/** The first offset that was stored at `time` or later, by halving. */
export async function offsetAt(topic, partition, time) {
  let { first, end } = await ends(topic, partition)
  while (first < end) {
    const middle = Math.floor((first + end) / 2)
    const [found] = await document_("read", { topic, partition, offset: middle, count: 1, cut: 0 })
    if (found && found.timestamp < time) first = found.offset + 1
    else end = middle
  }
  return first
}

const SCANNED = 10_000

/** Where the message with this id is, as [partition, offset]; throws if it was not found. An id that the
 * broker made says where that is, but a sender may have given the same to another message. */
export async function placeOf(topic, info, id) {
  const [, partition, offset] = /^(\d{1,4})-(\d{1,15})$/.exec(id) ?? []
  const there = partition < info.partitionCount ? await messageAt(topic, Number(partition), Number(offset)) : undefined
  const found = there?.id === id ? there : ((await withId(topic, info, id)) ?? there)
  if (found) return [found.partition, found.offset]
  const where = info.partitionCount > 1 ? "of each partition" : "of this topic"
  throw new Error(`There is no message ${id} among the newest ${SCANNED.toLocaleString("en")} ${where}; older ones are found by time.`)
}

async function messageAt(topic, partition, offset) {
  const { first, end } = await ends(topic, partition)
  return first <= offset && offset < end ? (await messages(topic, partition, offset, offset + 1, 0))[0] : undefined
}

async function withId(topic, info, id) {
  if (info.dedupeMs || info.dedupeLive)
    try {
      const group = info.consumeGroupList[0]?.groupName
      return await document_("why", { topic, consume_group: group, msgid: id })
    } catch (error) {
      if (error.status !== 404) throw error // ids are remembered for a while
    }
  for (let partition = 0; partition < info.partitionCount; partition++) {
    const { first, end } = await ends(topic, partition)
    const looked = await messages(topic, partition, Math.max(first, end - SCANNED), end, 0)
    const found = looked.findLast(each => each.id === id)
    if (found) return found
  }
}

/** Bytes of a body as it was told in JSON. */
export function bytesOf(message) {
  if (message.body_base64 == null) return new TextEncoder().encode(message.body ?? "")
  return Uint8Array.from(atob(message.body_base64), each => each.charCodeAt(0))
}

/** A form with a token; the reply's cookie is the browser's alone. */
export async function logIn(token) {
  const body = new URLSearchParams({ token })
  await send("/?cmd=login", { method: "POST", body, redirect: "manual" })
}

export const logOut = () => send("/?cmd=logout", { method: "POST", redirect: "manual" })
