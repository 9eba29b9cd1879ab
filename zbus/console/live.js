// What the broker is like now, and was in the last minutes: one stream of events for all pages.
//
// `/_stats` tells everything once and then, each second, what has changed. When the stream breaks,
// the page says so and tries again, until the broker is back. Pages draw from `live`.

import { useState, useEffect } from "./vendor/preact-htm.js"
import { events } from "/_client/zbus.js"
import { Away, Refused, document_, onForbidden, path } from "./api.js"

export const KEPT = 600 // moments, of a second each
const AGAIN_MS = 1_000
const POLL_MS = 2_000
const PATIENCE_MS = 20_000

export const live = {
  state: "connecting", // live, away or login
  doc: null,
  rights: null,
  sees: "all", // of figures: all, some (out of `query`) or none
  rates: { in: null, out: null, topics: new Map() }, // null: a rate takes two moments
  history: { t: [], in: [], out: [], backlog: [] },
  total: { backlog: 0, groups: 0 }, // of all topics
}

const listeners = new Set()
const tell = () => listeners.forEach(each => each())

/** A component that uses this is drawn again with each moment. */
export function useLive() {
  const [, again] = useState(0)
  useEffect(() => {
    const call = () => again(n => n + 1)
    listeners.add(call)
    call() // what was told between drawing and this, nobody heard
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

const stands = (pattern, name) => (pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : pattern === name)

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

/** Everything in `changed` is newer: of a topic it tells all, and null is gone. */
export function merge(doc, changed) {
  const topics = doc?.topics ?? Object.create(null) // a topic may be named like what every object has
  for (const [name, topic] of Object.entries(changed.topics ?? {})) {
    if (topic === null) delete topics[name]
    else topics[name] = topic
  }
  return { ...changed, topics }
}

const per = (after, before, seconds) => Math.max(0, (after ?? 0) - (before ?? 0)) / seconds

function noteRates(before, changed, now) {
  const seconds = (now.time - before.time) / 1000
  if (!(seconds > 0)) return
  const rates = live.rates
  for (const key of ["in", "out"]) rates[key] = per(now[`${key}Count`], before[`${key}Count`], seconds)
  // With many topics the broker takes turns, and tells of each every few seconds.
  const kept = 1_500 + Math.ceil(Object.keys(now.topics).length / 2_000) * 1_000
  for (const [name, rate] of rates.topics) if (now.time - rate.time > kept) rates.topics.delete(name)
  for (const [name, topic] of Object.entries(changed.topics ?? {})) {
    const old = before.counts.get(name)
    if (!topic || !old || now.time <= old.time) continue
    const told = countsOf(topic, now.time)
    const passed = Math.min(now.time - old.time, kept) / 1000
    const groups = Object.create(null)
    for (const [group, { out, acked }] of Object.entries(told.groups)) {
      const was = old.groups[group]
      if (was) groups[group] = { out: per(out, was.out, passed), acked: per(acked, was.acked, passed) }
    }
    const out = per(told.out, old.out, passed)
    rates.topics.set(name, { time: now.time, in: per(told.in, old.in, passed), out, groups })
  }
}

function countsOf(topic, time) {
  const counts = { time, in: topic.inCount, out: 0, backlog: backlogOf(topic), groupCount: 0, groups: Object.create(null) }
  for (const name in topic.groups) {
    const { outCount = 0, leased = 0 } = topic.groups[name]
    counts.out += outCount
    counts.groupCount++
    counts.groups[name] = { out: outCount, acked: outCount - leased }
  }
  return counts
}

function noteHistory(now) {
  const { history } = live
  for (const [key, value] of [
    ["t", now.time],
    ["in", live.rates.in],
    ["out", live.rates.out],
    ["backlog", live.total.backlog],
  ]) {
    history[key].push(value)
    if (history[key].length > KEPT) history[key].shift()
  }
}

/** Messages that wait in the group that is furthest behind. For one that came with its topic, and that
 * nobody has ever asked for, nothing waits: the metrics leave it out, too. */
export function backlogOf(topic) {
  let most = 0
  for (const name in topic.groups) {
    const { unclaimed, ready = 0, leased = 0 } = topic.groups[name]
    if (!unclaimed) most = Math.max(most, ready + leased)
  }
  return most
}

/** A second, in and out; null as long as only one moment is known. */
export function ratesOf(name) {
  if (live.rates.in === null) return { in: null, out: null }
  return live.rates.topics.get(name) ?? { in: 0, out: 0 }
}

/** The same of a group: out and acked. */
export function ratesOfGroup(topic, name) {
  if (live.rates.in === null) return { out: null, acked: null }
  return live.rates.topics.get(topic)?.groups[name] ?? { out: 0, acked: 0 }
}

let before = null

function take(changed, whole) {
  const now = merge(whole ? null : live.doc, changed)
  if (live.sees === "all" && before && before.startTime === now.startTime) noteRates(before, changed, now)
  else live.rates.in = live.rates.out = null
  const counts = whole || !before ? new Map() : before.counts
  const total = counts.size ? live.total : { backlog: 0, groups: 0 }
  for (const name of Object.keys(changed.topics ?? {})) {
    const old = counts.get(name)
    const told = now.topics[name] && countsOf(now.topics[name], now.time)
    if (told) counts.set(name, told)
    else counts.delete(name)
    total.backlog += (told?.backlog ?? 0) - (old?.backlog ?? 0)
    total.groups += (told?.groupCount ?? 0) - (old?.groupCount ?? 0)
  }
  live.total = total
  const { time, startTime, inCount, outCount } = now
  before = { time, startTime, inCount, outCount, counts }
  live.doc = now
  noteHistory(now)
  live.state = "live"
  tell()
}

// -- the stream ----------------------------------------------------------------------------

let source = null
let beginning = 0 // counted up with each start and stop: an earlier one has nothing to say any more
let timer = 0
let expiry = 0

function stop() {
  beginning++
  source?.abort()
  source = null
  clearTimeout(timer)
  clearTimeout(expiry)
}

/** Begin, or begin anew: after a login, and whenever the broker is back. */
export async function start() {
  stop()
  const own = beginning
  let rights = null
  let refused = false
  try {
    rights = await path("/_rights")
  } catch (error) {
    refused = error instanceof Refused && [401, 403].includes(error.status)
  }
  if (own !== beginning) return
  if (!rights) return refused ? become("login") : later()
  live.rights = rights
  if (live.rights.expires) expiry = setTimeout(start, Math.min(live.rights.expires - Date.now() + 500, 2 ** 31 - 1))
  live.sees = may("server") ? "all" : may("query") ? "some" : "none"
  if (live.sees !== "all") return live.sees === "some" ? poll(own) : blind()
  source = new AbortController()
  follow(source.signal)
}

/** A broker that is silent for long has gone without a word, as behind a proxy or a lost network. */
async function follow(signal) {
  let refused = false
  try {
    for await (const { type, data } of events("/_stats", { signal, silenceMs: PATIENCE_MS }))
      if (!signal.aborted && data) take(JSON.parse(data), type === "stats")
  } catch (error) {
    refused = error instanceof Refused
    if (!refused && !(error instanceof Away) && !signal.aborted) console.error(error)
  }
  if (!signal.aborted) broken(refused)
}

async function broken(closed) {
  stop()
  const own = beginning
  let problem = null
  try {
    live.rights = await path("/_rights")
  } catch (error) {
    problem = error
  }
  if (own !== beginning) return
  if (problem) return problem instanceof Refused && problem.status === 403 ? become("login") : later()
  if (closed) become("away") // it answers, and the stream was refused: it may be stopping
  timer = setTimeout(start, AGAIN_MS)
}

function later() {
  become("away")
  timer = setTimeout(start, AGAIN_MS)
}

/** It may use the broker, and sees no figures. */
function blind() {
  live.doc ??= { topics: Object.create(null) }
  become("live")
}

/** The same out of the document of the server, as far as it is there. */
async function poll(own) {
  try {
    const told = await document_("query")
    if (own !== beginning) return
    take(ofServer(told), true)
    timer = setTimeout(() => poll(own), POLL_MS)
  } catch (error) {
    if (own !== beginning) return
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
        ready: group.messageCount,
        leased: group.leasedCount,
        delayed: group.delayedCount,
        dead: group.deadCount,
        skipped: group.skippedCount,
        consumers: group.consumerCount,
        paused: group.paused,
        unclaimed: group.unclaimed,
      }
    topics[name] = {
      inCount: topic.messageDepth,
      depth: topic.messageDepth,
      partitionCount: topic.partitionCount,
      paused: topic.paused,
      consumerCount: topic.consumerCount,
      groupCount: topic.consumeGroupList.length,
      mask: topic.mask,
      groups,
    }
  }
  const inCount = Object.values(topics).reduce((sum, topic) => sum + topic.depth, 0)
  return { ...told, time: Date.now(), inCount, topics }
}

// A browser opens few connections to one host, and a stream is one: a tab in the back gives it up.
const HIDDEN_MS = 60_000
let hiding = 0
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding)
  if (document.hidden) hiding = setTimeout(stop, HIDDEN_MS)
  else if (!source && live.state !== "login") start()
})

// The token is not known any more, or may not do this one thing: the broker says which.
onForbidden(async () => {
  try {
    live.rights = await path("/_rights")
    tell()
  } catch (error) {
    if (!(error instanceof Away)) (stop(), become("login"))
  }
})
