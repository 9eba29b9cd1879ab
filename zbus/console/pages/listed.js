// What a group has delayed, leased or ready, and what can be done with each.

import {
  Button,
  Card,
  Field,
  FormDialog,
  Problem,
  Table,
  attempt,
  html,
  link,
  useAsked,
  useDialog,
  useEffect,
  useEvery,
  useState,
} from "../ui.js"
import { address, change, refusal, send } from "../api.js"
import { away, bare, bytes, moment } from "../format.js"
import { may } from "../live.js"

const COUNT = 200
const EVERY_MS = 2_000

/** Rows of `peek`: [rows, error, again, more, unseen]. */
function useListed(topic, group, state) {
  const [pages, setPages] = useState(1)
  const round = useEvery(EVERY_MS)
  const [told, error, again] = useAsked(async () => {
    const rows = []
    let after, unseen
    for (let page = 0; page < pages; page++) {
      const reply = await send(address("peek", { topic, consume_group: group, state, count: COUNT, after }))
      if (!reply.ok) throw await refusal(reply)
      rows.push(...(await reply.json()))
      after = reply.headers.get("next")
      unseen = reply.headers.get("unseen")
      if (!after) break
    }
    return {
      rows: rows.map(each => ({ ...each, id: `${each.partition}-${each.offset}`, name: each.id })),
      more: !!after,
      unseen,
    }
  }, [topic, group, state, pages, round])
  return [told?.rows ?? [], error, again, told?.more ? () => setPages(n => n + 1) : null, told?.unseen]
}

const places = (topic, group) => [
  {
    key: "offset",
    label: "Offset",
    number: true,
    of: row => row.offset,
    show: row => html`${row.offset}${row.partition ? html` <span class="dim">in ${row.partition}</span>` : ""}`,
  },
  {
    key: "name",
    label: "Id",
    class: "id",
    of: row => row.name,
    show: row =>
      html`<a href=${link("why", topic, String(row.partition), String(row.offset), group)} title="Why?"><code>${row.name}</code></a>`,
  },
  { key: "tag", label: "Tag", class: "free", of: row => row.tag ?? "", show: row => html`<span title=${row.tag}>${row.tag}</span>` },
  { key: "key", label: "Key", class: "free", of: row => row.key ?? "", show: row => html`<span title=${row.key}>${row.key}</span>` },
  { key: "attempts", label: "Attempts", number: true, of: row => row.attempts ?? 0 },
  { key: "size", label: "Size", number: true, of: row => row.size, show: row => bytes(row.size) },
]

export function Listed({ topic, group, state, title, until, empty, actions, holder, push }) {
  const [rows, error, again, more, unseen] = useListed(topic, group, state)
  const [dialog, open] = useDialog()
  const due = until && {
    key: "until",
    label: until,
    class: "when",
    of: row => row.until,
    show: row => html`<span title=${moment(row.until)}>${away(row.until)}</span>`,
  }
  const whose = holder && {
    key: "holder",
    label: "Holder",
    of: row => row.holder ?? "",
    show: row => (row.holder ? html`<code>${bare(row.holder)}</code>` : push ? "webhook" : html`<span class="dim" title="It is not connected any more">gone</span>`),
  }
  const columns = [
    due,
    whose,
    ...places(topic, group).filter(each => !holder || each.key !== "size"),
    actions && { key: "do", label: "", class: "do", show: row => actions(row, again, open) },
  ].filter(Boolean)
  return html`<${Card} title=${title}>
    <${Problem} error=${error}/>
    <${Table} columns=${columns} rows=${rows} label=${title} sort=${{ key: due ? "until" : "offset", down: false }} empty=${error ? "" : empty}/>
    ${unseen && html`<p class="dim">${unseen} messages further on were not looked at: the group has not come to them.</p>`}
    ${more && html`<${Button} onClick=${more}>Load more<//>`}${dialog}
  <//>`
}

const soon = () => {
  const d = new Date(Date.now() + 3_600_000)
  return new Date(d - d.getTimezoneOffset() * 60_000).toISOString().slice(0, 16)
}

function Reschedule({ at, close, again }) {
  const [when] = useState(soon)
  const call = async ({ when }) => {
    await change("reschedule", { ...at, deliver_at: Date.parse(when) })
    again()
  }
  return html`<${FormDialog} title=${`Reschedule offset ${at.offset}`} submit="Reschedule" close=${close} call=${call} done="It is due then.">
    <${Field} label="Due at"><input name="when" type="datetime-local" step="1" required defaultValue=${when}/><//><//>`
}

export function Delayed({ topic, info, group: only }) {
  // First those that somebody reads: the delayed messages of a group that nobody does are of no use.
  const listed = info.consumeGroupList?.toSorted((a, b) => !!a.unclaimed - !!b.unclaimed)
  const groups = listed?.map(each => each.groupName) ?? [only]
  const [group, setGroup] = useState(only ?? groups[0])
  useEffect(() => void (groups.includes(group) || setGroup(groups[0])), [groups.join()])
  if (!group)
    return html`<${Card} title="Delayed"><p class="empty">A group has to be there, whose delayed messages these are.</p><//>`
  const actions =
    may("consume", topic, group) &&
    ((row, again, open) => {
      const at = { topic, consume_group: group, partition: row.partition, offset: row.offset }
      const done = (text, cmd) => attempt(text, async () => (await change(cmd, at), again()))
      return html`<${Button} onClick=${() => done("It is due now.", "fire")}>Fire now<//>
      <${Button} onClick=${() => open(close => html`<${Reschedule} at=${at} close=${close} again=${again}/>`)}>Reschedule<//>
      <${Button} kind="danger-quiet" onClick=${() =>
        open(
          close => html`<${FormDialog} title=${`Cancel offset ${row.offset}`} submit="Cancel it" refuse="Keep it" kind="danger" close=${close}
        call=${async () => (await change("cancel", at), again())} done="It is never delivered."><p>The message is finished in this group, and not delivered.</p><//>`,
        )}>Cancel<//>`
    })
  return html`${
    groups.length > 1 &&
    html`<div class="bar"><${Field} label="Of group"><select value=${group} onChange=${event => setGroup(event.target.value)}>
      ${groups.map(each => html`<option key=${each} value=${each}>${each}</option>`)}</select><//></div>`
  }
    <${Listed} key=${group} topic=${topic} group=${group} state="delayed" title="Delayed" until="Due" empty="Nothing is delayed." actions=${actions}/>`
}

export function Leased({ topic, group, push }) {
  const actions =
    may("consume", topic, group) &&
    ((row, again) => {
      const at = { topic, consume_group: group, partition: row.partition, offset: row.offset }
      const done = (text, cmd) => attempt(text, async () => (await change(cmd, at), again()))
      return html`<${Button} onClick=${() => done("It was given back, and is handed out again.", "nack")}>Give back<//>
      <${Button} onClick=${() => done("Its lease was extended.", "extend")}>Extend<//>
      <${Button} onClick=${() => done("It is acknowledged.", "ack")}>Acknowledge<//>`
    })
  return html`<${Listed} topic=${topic} group=${group} state="leased" title="Leases" until="Ends" holder push=${push} empty="Nothing is leased." actions=${actions}/>`
}
