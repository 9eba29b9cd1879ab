// What a topic or a group is to be: forms over `declare`, which changes what is said and no more.

import { Field, FormDialog, go, html, useState } from "../ui.js"
import { NOTHING, change } from "../api.js"
import { bytesIn, duration, milliseconds, size } from "../units.js"

const pauses = text => (text === "none" ? text : text.split(",").map(milliseconds).join(","))

/** How what is typed is said to the broker. */
const SAID = { duration: milliseconds, size: bytesIn, pauses }
const YES = [
  ["true", "yes"],
  ["false", "no"],
]
const AS_TOPIC = [["", "as the topic has it"], ...YES]
const DURABILITIES = ["", "memory", "os", "disk"].map(each => [each, each || "as the broker has it"])
const ON_LOSS = [
  ["keep", "are kept to their end"],
  ["front", "go back in front"],
]
const ORDERS = [
  ["none", "as they come"],
  ["key", "one after another, per key"],
  ["priority", "by priority, the highest first"],
]

// Each is [name, label, kind or choices, more]: `nothing` is said for one that was emptied.
const NEVER = { placeholder: "no limit" }
const OF_NEW_TOPIC = [
  ["durability", "Durability", DURABILITIES, { hint: "What a reply to a producer waits for" }],
  ["partitions", "Partitions", "number", { min: 1, placeholder: "1" }],
]
const OF_TOPICS = [
  ["retention_ms", "Keep for", "duration", { hint: "7d, 12h; 0: no such limit", placeholder: "for ever" }],
  ["dedupe_ms", "Remember ids for", "duration", { hint: "So that no message is stored twice", placeholder: "not at all" }],
]
const OF_TOPIC = [
  ...OF_TOPICS,
  ["retention_bytes", "Keep of each partition", "size", { hint: "500MiB, 20GiB; 0: no such limit", ...NEVER }],
  ["retention_count", "Keep of each partition, messages", "number", NEVER],
  ["retention_done", "Forget what all groups have finished", YES],
  ["compact", "Keep the newest message of each key", YES],
  ["settled_ms", "Know what became of messages for", "duration"],
  ["topic_ack", "Groups lease their messages", YES],
  ["topic_paused", "Deliveries are held back", YES],
]
const ofGroup = yes => [
  ["ack", "Leases until acknowledged", yes],
  ["group_lease", "Lease", "duration", { hint: "30s, 5m", placeholder: "10s" }],
  ["group_window", "Leased at once, at most", "number", { placeholder: "100" }],
  ["group_on_loss", "When a connection is lost, leases", ON_LOSS],
  ["group_order", "Order", ORDERS],
  ["group_filter", "Filter on tags", "text", { nothing: NOTHING }],
  ["group_max_attempts", "Attempts, at most", "number", { min: 1, nothing: "none", ...NEVER }],
  ["group_backoff", "Backoff", "pauses", { hint: "First, or first and longest: 1s,10m", nothing: "none" }],
  ["group_dead_letter", "Dead-letter topic", "text", { nothing: NOTHING }],
  ["group_rate", "Messages a second, at most", "number", { min: 1, nothing: "none", ...NEVER }],
  ["exclusive", "One reader at a time", yes],
  ["group_retain", "Retention waits for it", YES],
]
const OF_WEBHOOK = [
  ["push_url", "Address", "text", { nothing: "none", placeholder: "none", type: "url" }],
  ["push_secret", "Secret", "text", { type: "password", autocomplete: "new-password" }],
  ["push_concurrency", "Requests at once", "number", { min: 1, placeholder: "10" }],
  ["push_timeout", "Longest time of a request", "duration", { placeholder: "30s" }],
]

/** What is there already is a default and no value: a page that is drawn again leaves what was typed. */
const Fields = ({ of, before }) => html`<div class="fields">${of.map(
  ([name, label, kind, { hint, nothing, ...rest } = {}]) => html`<${Field} label=${label} hint=${hint} key=${name}>
    <${Input} name=${name} kind=${kind} value=${before[name] ?? ""} ...${rest}/><//>`,
)}</div>`

function Input({ name, kind, value, ...rest }) {
  if (Array.isArray(kind))
    return html`<select name=${name}>${kind.map(
      ([each, text]) => html`<option value=${each} key=${each} selected=${each === value}>${text}</option>`,
    )}</select>`
  const form = kind === "number" ? { type: "number", min: 0 } : { type: "text", spellcheck: false }
  return html`<input name=${name} defaultValue=${value} autocomplete="off" ...${form} ...${rest}/>`
}

/** Only what was changed is said; what was emptied is said as `nothing`. */
function changed(form, fields, before) {
  const said = {}
  for (const [name, , kind, { nothing = "0" } = {}] of fields) {
    const value = form[name].trim()
    if (value === (before[name] ?? "")) continue
    said[name] = value === "" ? nothing : (SAID[kind]?.(value) ?? value)
  }
  return said
}

function changedAtAll(...of) {
  const said = changed(...of)
  if (Object.keys(said).length === 0) throw new Error("Nothing is changed: all of it is as it was.")
  return said
}

export function NewTopic({ close }) {
  const fields = [...OF_NEW_TOPIC, ...OF_TOPICS]
  const call = async form => {
    const topic = form.topic.trim()
    await change("declare", { topic, ...changed(form, fields, {}) })
    go("topics", topic)
  }
  return html`<${FormDialog} title="New topic" submit="Make it" close=${close} call=${call} done="The topic is there.">
    <${Field} label="Name"><input name="topic" required maxlength="200" autocomplete="off" spellcheck="false"/><//>
    <${Fields} of=${fields} before=${{}}/><//>`
}

export function TopicForm({ topic, info, close, again }) {
  // As it was when the form was opened: what others change meanwhile is not changed back.
  const [before] = useState(() => ({
    retention_ms: duration(info.retentionMs),
    retention_bytes: size(info.retentionBytes),
    retention_count: String(info.retentionCount ?? ""),
    retention_done: String(!!info.retentionDone),
    compact: String(!!info.compact),
    dedupe_ms: duration(info.dedupeMs),
    settled_ms: duration(info.settledMs),
    topic_ack: String(!!info.ack),
    topic_paused: String(!!info.paused),
  }))
  const call = async form => {
    await change("declare", { topic, ...changedAtAll(form, OF_TOPIC, before) })
    again()
  }
  return html`<${FormDialog} title=${`Change ${topic}`} submit="Change it" close=${close} call=${call} done="The topic is changed.">
    <${Fields} of=${OF_TOPIC} before=${before}/><//>`
}

const settingsOf = info => ({
  ack: String(!!info.ack),
  group_lease: duration(info.leaseMs),
  group_window: String(info.window),
  group_on_loss: info.onLoss ?? "keep",
  group_order: info.order ?? "none",
  group_filter: info.filter ?? "",
  group_max_attempts: String(info.maxAttempts ?? ""),
  group_backoff: [info.backoffMs, info.backoffMs && info.backoffMaxMs].filter(Boolean).map(duration).join(","),
  group_dead_letter: info.deadLetter ?? "",
  group_rate: String(info.rate ?? ""),
  exclusive: String(!!info.exclusive),
  group_retain: String(!!info.retain),
  push_url: info.push?.url ?? "",
  push_concurrency: String(info.push?.concurrency ?? ""),
  push_timeout: duration(info.push?.timeoutMs),
})
const AS_NEW = { group_on_loss: "keep", group_order: "none", group_retain: "false" }

/** A new group, or with `info` the settings of one. */
export function GroupForm({ topic, info, close, done, again }) {
  const [before] = useState(() => (info ? settingsOf(info) : AS_NEW))
  const fields = ofGroup(info ? YES : AS_TOPIC)
  const all = [...fields, ...OF_WEBHOOK]
  const call = async form => {
    const name = info?.groupName ?? form.consume_group.trim()
    const said = info ? changedAtAll(form, all, before) : { from: form.from, ...changed(form, all, before) }
    await change("declare", { topic, consume_group: name, ...said })
    if (info) again()
    else go("topics", topic, "groups", name)
  }
  return html`<${FormDialog} title=${info ? `Change ${info.groupName}` : `New group of ${topic}`} submit=${info ? "Change it" : "Make it"} close=${close} call=${call} done=${done}>
    ${
      !info &&
      html`<div class="fields"><${Field} label="Name"><input name="consume_group" required maxlength="200" autocomplete="off" spellcheck="false"/><//>
      <${Field} label="Begin at" hint="earliest, latest, an offset, or a time such as 2027-01-15T08:00:00Z"><input name="from" placeholder="where the furthest group stands" autocomplete="off"/><//></div>`
    }
    <${Fields} of=${fields} before=${before}/>
    <details class="more" open=${!!before.push_url}><summary>Send its messages to a web server</summary>
      <p class="dim">Each message is a POST; a reply of 2xx acknowledges it. The secret, <code>whsec_…</code>, signs them${
        info?.push?.signed ? ": it is not shown, and stays unless you write another one, or none" : ""
      }.</p>
      <${Fields} of=${OF_WEBHOOK} before=${before}/></details>
  <//>`
}
