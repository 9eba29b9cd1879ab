// What a topic or a group is to be: forms over `declare`, which changes what is said and no more.

import { Field, FormDialog, go, html } from "../ui.js"
import { NOTHING, change } from "../api.js"

const Number_ = ({ name, value, min = 0 }) => html`<input name=${name} type="number" min=${min} value=${value ?? ""}/>`
const Switch = ({ name, value }) => html`<select name=${name}>
  <option value="" selected>as it is${value === undefined ? "" : value ? ": yes" : ": no"}</option><option value="true">yes</option><option value="false">no</option></select>`

/** Only what was changed is said; what was emptied is said as `nothing`. */
function changed(form, before, nothing) {
  const said = {}
  for (const [name, value] of Object.entries(form)) {
    const old = before[name] == null ? "" : String(before[name])
    if (value !== old) said[name] = value === "" ? (nothing[name] ?? "0") : value
  }
  return said
}

export function TopicForm({ topic, info, close, again }) {
  const before = {
    retention_ms: info.retentionMs,
    retention_bytes: info.retentionBytes,
    retention_count: info.retentionCount,
    dedupe_ms: info.dedupeMs,
    settled_ms: info.settledMs,
  }
  const call = async form => {
    await change("declare", { topic, ...changed(form, before, {}) })
    again()
  }
  return html`<${FormDialog} title=${`Change ${topic}`} submit="Change it" close=${close} call=${call} done="The topic is changed.">
    <div class="fields">
      <${Field} label="Keep for, ms" hint="0: no such limit"><${Number_} name="retention_ms" value=${before.retention_ms}/><//>
      <${Field} label="Keep of each partition, bytes"><${Number_} name="retention_bytes" value=${before.retention_bytes}/><//>
      <${Field} label="Keep of each partition, messages"><${Number_} name="retention_count" value=${before.retention_count}/><//>
      <${Field} label="Forget what all groups have finished"><${Switch} name="retention_done" value=${info.retentionDone}/><//>
      <${Field} label="Remember ids for, ms"><${Number_} name="dedupe_ms" value=${before.dedupe_ms}/><//>
      <${Field} label="Know what became of messages for, ms"><${Number_} name="settled_ms" value=${before.settled_ms}/><//>
      <${Field} label="Groups lease their messages"><${Switch} name="topic_ack" value=${!!info.ack}/><//>
      <${Field} label="Deliveries are held back"><${Switch} name="topic_paused" value=${!!info.paused}/><//>
    </div>
  <//>`
}

/** A new group, or with `info` the settings of one. */
export function GroupForm({ topic, info, close, done, again }) {
  const before = info
    ? {
        group_lease: info.leaseMs,
        group_window: info.window,
        group_filter: info.filter,
        group_max_attempts: info.maxAttempts,
        group_dead_letter: info.deadLetter,
        group_rate: info.rate,
        group_backoff:
          info.backoffMs && (info.backoffMaxMs ? `${info.backoffMs},${info.backoffMaxMs}` : info.backoffMs),
      }
    : {}
  const nothing = {
    group_filter: NOTHING,
    group_dead_letter: NOTHING,
    group_max_attempts: "none",
    group_rate: "none",
    group_backoff: "none",
  }
  const call = async form => {
    const { consume_group = info?.groupName, ...rest } = form
    const name = consume_group.trim()
    await change("declare", { topic, consume_group: name, ...changed(rest, before, nothing) })
    if (info) again()
    else go("topics", topic, "groups", name)
  }
  return html`<${FormDialog} title=${info ? `Change ${info.groupName}` : `New group of ${topic}`} submit=${info ? "Change it" : "Make it"} close=${close} call=${call} done=${done}>
    ${
      !info &&
      html`<div class="fields"><${Field} label="Name"><input name="consume_group" required maxlength="200" autocomplete="off" spellcheck="false"/><//>
      <${Field} label="Begin at" hint="earliest, latest, an offset, or a time such as 2027-01-15T08:00:00Z"><input name="from" placeholder="where the furthest group stands"/><//></div>`
    }
    <div class="fields">
      <${Field} label="Leases until acknowledged"><${Switch} name="ack" value=${info && !!info.ack}/><//>
      <${Field} label="Lease, ms"><${Number_} name="group_lease" value=${before.group_lease}/><//>
      <${Field} label="Leased at once"><${Number_} name="group_window" value=${before.group_window}/><//>
      <${Field} label="Filter on tags"><input name="group_filter" value=${before.group_filter ?? ""} autocomplete="off"/><//>
      <${Field} label="Attempts at most"><${Number_} name="group_max_attempts" min="1" value=${before.group_max_attempts}/><//>
      <${Field} label="Backoff, ms" hint="First, or first and longest: 1000,60000"><input name="group_backoff" value=${before.group_backoff ?? ""}/><//>
      <${Field} label="Dead-letter topic"><input name="group_dead_letter" value=${before.group_dead_letter ?? ""} autocomplete="off"/><//>
      <${Field} label="Messages a second at most"><${Number_} name="group_rate" min="1" value=${before.group_rate}/><//>
      <${Field} label="One reader at a time"><${Switch} name="exclusive" value=${info && !!info.exclusive}/><//>
    </div>
  <//>`
}
