// What the broker is like now, and was in the last minutes: one stream of events for all pages.
//
// `/_stats` tells everything once and then, each second, what has changed. When the stream breaks,
// the page says so and tries again, until the broker is back. Pages draw from `live`.

import { html, useState, useEffect } from "./vendor/preact-htm.js"
import { Away, Refused, document_, onForbidden, path } from "./api.js"

const KEPT = 600 // moments, of a second each
const GROUPS_KEPT = 1_000 // histories of groups, those that changed last
const AGAIN_MS = 1_000
const POLL_MS = 2_000
const PATIENCE_MS = 20_000

export const live = {
  state: "connecting", // live, away or login
  doc: null,
  rights: null,
  rates: { in: 0, out: 0, inBytes: 0, outBytes: 0, topics: new Map() },
  history: { t: [], in: [], out: [], backlog: [] },
  groups: new Map(), // "topic\ngroup" -> [[t, ready, leased, outCount], …]
}

const listeners = new Set()
const tell = () => listeners.forEach(each => each())

/** A component that uses this is drawn again with each moment. */
export function useLive() {
  const [, again] = useState(0)
  useEffect(() => {
    const call = () => again(n => n + 1)
    listeners.add(call)
    return () => listeners.delete(call)
  }, [])
  return live
}

export function become(state) {
  if (live.state === state) return
  live.state = state
  tell()
}

// -- rights --------------------------------------------------------------------------------

const stands = (pattern, name) =>
  pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : pattern === name

/** Whether the token may do this; `group` null = all groups of the topic. */
export function may(operation, topic, group) {
  const { operations = [], topics = {} } = live.rights ?? {}
  if (operations.includes("admin")) return true
  if (!operations.includes("*") && operation && !operations.includes(operation)) return false
  if (topic == null) return true
  const fits = Object.entries(topics).filter(([pattern]) => stands(pattern, topic.toLowerCase()))
  if (group === undefined) return fits.length > 0
  if (group === null) return fits.some(([, groups]) => groups.includes("*"))
  return fits.some(([, groups]) => groups.some(each => stands(each, group.toLowerCase())))
}

export function seesAll() {
  const { operations = [], topics = {} } = live.rights ?? {}
  return operations.includes("admin") || (topics["*"] ?? []).includes("*")
}

// -- moments -------------------------------------------------------------------------------

/** Everything in `changed` is newer; null is gone. */
export function merge(doc, changed) {
  const topics = doc?.topics ?? {}
  for (const [name, topic] of Object.entries(changed.topics ?? {})) {
    if (topic === null) {
      delete topics[name]
      continue
    }
    const groups = topics[name]?.groups ?? {}
    for (const [group, told] of Object.entries(topic.groups ?? {})) {
      if (told === null) delete groups[group]
      else groups[group] = { ...groups[group], ...told }
    }
    topics[name] = { ...topics[name], ...topic, groups }
  }
  return { ...changed, topics }
}

const per = (after, before, seconds) => Math.max(0, (after ?? 0) - (before ?? 0)) / seconds

function noteRates(before, changed, now) {
  const seconds = (now.time - before.time) / 1000
  if (!(seconds > 0)) return
  const rates = live.rates
  for (const key of ["in", "out"]) {
    rates[key] = per(now[`${key}Count`], before[`${key}Count`], seconds)
    rates[`${key}Bytes`] = per(now[`${key}Bytes`], before[`${key}Bytes`], seconds)
  }
  const topics = new Map()
  for (const [name, topic] of Object.entries(changed.topics ?? {})) {
    const old = before.counts.get(name)
    if (topic && old) {
      const told = countsOf(now.topics[name])
      topics.set(name, { in: per(told.in, old.in, seconds), out: per(told.out, old.out, seconds) })
    }
  }
  rates.topics = topics
}

const countsOf = topic => ({
  in: topic.inCount,
  out: Object.values(topic.groups ?? {}).reduce((sum, group) => sum + (group.outCount ?? 0), 0),
})

function noteHistory(changed, now) {
  const { history } = live
  let backlog = 0
  for (const topic of Object.values(now.topics)) backlog += backlogOf(topic)
  for (const [key, value] of [["t", now.time], ["in", live.rates.in], ["out", live.rates.out], ["backlog", backlog]]) {
    history[key].push(value)
    if (history[key].length > KEPT) history[key].shift()
  }
  for (const [name, topic] of Object.entries(changed.topics ?? {}))
    for (const group of Object.keys(topic?.groups ?? {})) {
      const told = now.topics[name]?.groups[group]
      if (told) noteGroup(`${name}\n${group}`, now.time, told)
    }
}

function noteGroup(key, time, told) {
  const points = live.groups.get(key) ?? []
  live.groups.delete(key) // and to the end: the map is in order of change
  live.groups.set(key, points)
  points.push([time, told.ready, told.leased, told.outCount])
  if (points.length > KEPT) points.shift()
  if (live.groups.size > GROUPS_KEPT) live.groups.delete(live.groups.keys().next().value)
}

/** Messages that wait in the group that is furthest behind. */
export const backlogOf = topic =>
  Object.values(topic.groups ?? {}).reduce((most, group) => Math.max(most, (group.ready ?? 0) + (group.leased ?? 0)), 0)

let before = null

function take(changed, whole) {
  const now = merge(whole ? null : live.doc, changed)
  if (before && before.startTime === now.startTime) noteRates(before, changed, now)
  const counts = whole || !before ? new Map() : before.counts
  for (const name of Object.keys(changed.topics ?? {})) {
    if (now.topics[name]) counts.set(name, countsOf(now.topics[name]))
    else counts.delete(name)
  }
  const { time, startTime, inCount, outCount, inBytes, outBytes } = now
  before = { time, startTime, inCount, outCount, inBytes, outBytes, counts }
  live.doc = now
  live.names = live.doc.topics
  noteHistory(changed, now)
  live.state = "live"
  tell()
}

// -- the stream ----------------------------------------------------------------------------

let source = null
let timer = 0
let heard = 0

function stop() {
  source?.close()
  source = null
  clearTimeout(timer)
}

/** Begin, or begin anew: after a login, and whenever the broker is back. */
export async function start() {
  stop()
  try {
    live.rights = await path("/_rights")
  } catch (error) {
    if (error instanceof Refused && [401, 403].includes(error.status)) return become("login")
    return later()
  }
  if (!may("query") && !may("server")) {
    // It may use the broker, and sees no figures.
    live.doc ??= { topics: {} }
    become("live")
    return
  }
  source = new EventSource("/_stats")
  heard = Date.now()
  const told = whole => event => {
    heard = Date.now()
    take(JSON.parse(event.data), whole)
  }
  source.addEventListener("stats", told(true))
  source.addEventListener("delta", told(false))
  source.onerror = () => broken(source?.readyState === EventSource.CLOSED)
}

async function broken(closed) {
  stop()
  try {
    live.rights = await path("/_rights")
  } catch (error) {
    if (error instanceof Refused && error.status === 403) return become("login")
    return later()
  }
  if (closed && !live.doc?.inCount) return poll() // a broker without this stream
  timer = setTimeout(start, AGAIN_MS)
}

function later() {
  become("away")
  timer = setTimeout(start, AGAIN_MS)
}

/** The same out of the document of the server, as far as it is there. */
async function poll() {
  try {
    take(ofServer(await document_("server")), true)
    timer = setTimeout(poll, POLL_MS)
  } catch (error) {
    if (error instanceof Away) later()
    else if (live.state !== "login") become("live")
  }
}

function ofServer(told) {
  const topics = {}
  for (const [name, topic] of Object.entries(told.topicTable)) {
    const groups = {}
    for (const group of topic.consumeGroupList)
      groups[group.groupName] = {
        ready: group.messageCount, leased: group.leasedCount, delayed: group.delayedCount,
        dead: group.deadCount, skipped: group.skippedCount, consumers: group.consumerCount,
        paused: group.paused,
      }
    topics[name] = {
      inCount: topic.messageDepth, depth: topic.messageDepth, partitionCount: topic.partitionCount,
      paused: topic.paused, consumerCount: topic.consumerCount,
      groupCount: topic.consumeGroupList.length, mask: topic.mask, groups,
    }
  }
  const inCount = Object.values(topics).reduce((sum, topic) => sum + topic.depth, 0)
  return { ...told, time: Date.now(), inCount, topics }
}

// A broker that is silent for long has gone without a word, as behind a proxy or a lost network.
setInterval(() => {
  if (source && Date.now() - heard > PATIENCE_MS) broken(false)
}, 5_000)

// The token is not known any more, or may not do this one thing: the broker says which.
onForbidden(async () => {
  try {
    live.rights = await path("/_rights")
    tell()
  } catch (error) {
    if (!(error instanceof Away)) stop(), become("login")
  }
})

export { html }
