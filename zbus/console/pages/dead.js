// The dead letters of a group: in the topic that it names for them, with what each died of.

import {
  Badge,
  Button,
  Card,
  Empty,
  Field,
  FormDialog,
  Problem,
  Table,
  html,
  link,
  notify,
  useAsked,
  useDialog,
  useState,
} from "../ui.js"
import { ask, change, document_, ends, messages } from "../api.js"
import { away, bytes, count, moment, plural } from "../format.js"
import { live, may } from "../live.js"

const LOOKED_AT = 500 // the newest of each partition
const PAGES = 5 // of a thousand each, of what is ready

const REASONS = {
  expired: "its lease ended",
  "given back": "it was given back",
  lost: "its consumer was gone",
  attempts: "its attempts were used up",
}

const reasonOf = ({ headers }) => REASONS[headers.dead_reason] ?? headers.dead_reason ?? ""

const decoded = text => {
  try {
    return decodeURIComponent(text ?? "")
  } catch {
    return text
  }
}

/** The letters of a group, of the newest in its dead-letter topic: which of them are still ready there. Asked for
 * again when something moves in that topic. */
export function useLetters(topic, group, info) {
  const [reader, read] = useState(null)
  const letter = info?.deadLetter
  const allowed = letter && may("query", letter) && may("consume", letter, null)
  const now = live.doc?.topics[letter]
  const moved = now && JSON.stringify([now.inCount, Object.values(now.groups).map(each => each.ready + each.leased)])
  const [told, error, again] = useAsked(
    () => (allowed ? lettersOf(letter, topic, group, reader) : null),
    [letter, allowed, topic, group, reader, moved],
  )
  return { letter, allowed, ...told, error, again, read }
}

async function lettersOf(letter, topic, group, reader) {
  const info = await document_("query", { topic: letter })
  const groups = info.consumeGroupList.toSorted((a, b) => !!a.unclaimed - !!b.unclaimed).map(each => each.groupName)
  const chosen = groups.includes(reader) ? reader : groups[0]
  const ready = chosen === undefined ? new Set() : await readyIn(letter, chosen)
  const rows = []
  for (let partition = 0; partition < info.partitionCount; partition++) {
    const { first, end } = await ends(letter, partition)
    rows.push(...(await messages(letter, partition, Math.max(first, end - LOOKED_AT), end, 80)))
  }
  const named = rows.map(each => ({ ...each, name: each.id, id: `${each.partition}-${each.offset}` }))
  const mine = named
    .filter(({ headers }) => decoded(headers.dead_topic) === topic && decoded(headers.dead_group) === group)
    .map(each => ({ ...each, open: ready.has(each.id) }))
  const listed = new Set(named.map(each => each.id))
  return { groups, chosen, rows: mine, older: [...ready].filter(each => !listed.has(each)).length }
}

/** Where the messages are that a group has still to be handed. */
async function readyIn(topic, group) {
  const found = new Set()
  let after
  for (let page = 0; page < PAGES; page++) {
    const reply = await ask("peek", { topic, consume_group: group, count: 1000, after })
    for (const each of await reply.json()) found.add(`${each.partition}-${each.offset}`)
    after = reply.headers.get("next")
    if (!after) break
  }
  return found
}

export function Dead({ topic, group, info, letters }) {
  const { letter, allowed, error } = letters
  if (!letter)
    return html`<${Card} title="Dead letters"><${Empty}>This group has no dead-letter topic. ${
      info.maxAttempts ? "What it gives up is dropped." : "It hands a message out as often as it takes."
    }<//><//>`
  if (!allowed)
    return html`<${Card} title="Dead letters"><${Empty}>They are in the topic ${letter}, at which this token may not look.<//><//>`
  if (!letters.rows) return html`<${Card} title="Dead letters"><${Problem} error=${error}/><//>`
  return html`<${Letters} topic=${topic} group=${group} ...${letters}/>`
}

/** Offsets of each partition, as ranges: `3-9,12`. */
function placesOf(rows) {
  const found = new Map()
  for (const { partition, offset } of rows.toSorted((a, b) => a.offset - b.offset)) {
    const ranges = found.get(partition) ?? []
    if (ranges.at(-1)?.[1] === offset - 1) ranges.at(-1)[1] = offset
    else ranges.push([offset, offset])
    found.set(partition, ranges)
  }
  return [...found].map(([partition, ranges]) => [partition, ranges.map(each => each.join("-")).join()])
}

function Letters({ topic, group, letter, groups, chosen, rows, older, error, again, read }) {
  const [dialog, open] = useDialog()
  const [cause, setCause] = useState("")
  const [marked, setMarked] = useState(new Set())
  const mayRedrive = chosen && may("consume", letter, chosen) && may("produce", topic)
  const causes = [...new Set(rows.map(reasonOf))].toSorted()
  const seen = cause ? rows.filter(each => reasonOf(each) === cause) : rows
  const waiting = seen.filter(each => each.open)
  const picked = waiting.filter(each => marked.has(each.id))
  const mark = (ids, on) => setMarked(old => new Set(on ? [...old, ...ids] : [...old].filter(each => !ids.includes(each))))
  const redrive = async (these, alone) => {
    let moved = 0
    let stayed = 0
    for (const [partition, offset] of placesOf(these)) {
      const params = { topic: letter, consume_group: chosen, partition, offset, only_group: alone ? 1 : null }
      const { headers } = await change("redrive", params)
      moved += Number(headers.get("count"))
      stayed += Number(headers.get("stayed"))
    }
    const where = alone ? `given back to ${group}` : `put back into ${topic}`
    const why = alone ? `${topic} has them no more or is in another process, or ${group} has them already` : "they stay"
    notify(`${count(moved)} of them were ${where}.${stayed ? ` ${count(stayed)} could not be: ${why}.` : ""}`)
    again()
  }
  const sure = (title, these) =>
    open(
      close => html`<${FormDialog} title=${title} submit="Redrive" close=${close} call=${form => redrive(these, form.who === "group")}>
    <p>${plural(these.length, "message")} that died in the group <code>${group}</code> ${these.length === 1 ? "is" : "are"} delivered again,
    and finished in <code>${letter}</code>. Letters of other groups stay.</p>
    <fieldset class="options"><legend>Deliver to</legend>
      <label><input type="radio" name="who" value="every" checked/><span><b>Every group of <code>${topic}</code></b>
        <small>Put back into the topic as a new message.</small></span></label>
      <label><input type="radio" name="who" value="group"/><span><b>Only <code>${group}</code></b>
        <small>It is handed the message again that is in the log of the topic. If the log has dropped it, the letter stays.</small></span></label>
    </fieldset><//>`,
    )
  const columns = [
    ...(mayRedrive
      ? [
          {
            key: "mark",
            label: "Choose",
            class: "mark",
            show: row =>
              row.open &&
              html`<input type="checkbox" aria-label=${`Choose ${row.id}`} checked=${marked.has(row.id)} onChange=${event => mark([row.id], event.target.checked)}/>`,
          },
        ]
      : []),
    {
      key: "timestamp",
      label: "Died",
      class: "when",
      of: row => row.timestamp,
      show: row => html`<span title=${moment(row.timestamp)}>${away(row.timestamp)}</span>`,
    },
    {
      key: "reason",
      label: "Because",
      class: "whole",
      of: reasonOf,
    },
    { key: "attempts", label: "Attempts", number: true, of: row => Number(row.headers.dead_attempts) },
    { key: "was", label: "Was at", number: true, of: row => Number(row.headers.dead_offset) },
    {
      key: "name",
      label: "Id",
      of: row => row.name,
      show: row => html`<code class=${row.name.length < 10 ? "short" : ""}>${row.name}</code>`,
    },
    {
      key: "body",
      label: "Body",
      of: row => row.body ?? "",
      class: "preview",
      show: row => (row.body_base64 != null ? html`<i>binary, ${bytes(row.size)}</i>` : row.body),
    },
    {
      key: "open",
      label: "State",
      class: "when",
      of: row => (row.open ? 0 : 1),
      show: row => (row.open ? html`<${Badge} kind="bad">open<//>` : html`<span class="dim">finished</span>`),
    },
    ...(mayRedrive
      ? [
          {
            key: "do",
            label: "",
            class: "do",
            show: row => row.open && html`<${Button} onClick=${() => sure("Redrive a message", [row])}>Redrive<//>`,
          },
        ]
      : []),
  ]
  return html`<${Card} title="Dead letters" actions=${
    mayRedrive &&
    waiting.length > 0 &&
    html`${picked.length > 0 && html`<${Button} kind="main" onClick=${() => sure("Redrive the chosen", picked)}>Redrive ${count(picked.length)} chosen<//>`}
    <${Button} onClick=${() => sure("Redrive all", waiting)}>Redrive all<//>`
  }>
    <p class="dim">They are in the topic <a href=${link("topics", letter)}>${letter}</a>. One that is handed out, was redriven or was
    acknowledged there is not open any more.${older > 0 && ` ${plural(older, "older message waits", "older messages wait")} there, of any group: this list has the newest.`}</p>
    <div class="bar">${
      groups.length > 1 &&
      html`<${Field} label="Open in group"><select value=${chosen} onChange=${event => read(event.target.value)}>
      ${groups.map(each => html`<option key=${each} value=${each}>${each}</option>`)}</select><//>`
    }${
      causes.length > 1 &&
      html`<${Field} label="Because"><select value=${cause} onChange=${event => setCause(event.target.value)}>
      <option value="">of anything</option>${causes.map(each => html`<option key=${each} value=${each}>${each}</option>`)}</select><//>`
    }${
      mayRedrive &&
      waiting.length > 1 &&
      html`<label class="check"><input type="checkbox" checked=${picked.length === waiting.length} onChange=${event =>
        mark(
          waiting.map(each => each.id),
          event.target.checked,
        )}/> All ${count(waiting.length)} open</label>`
    }</div>
    <${Problem} error=${error}/>
    <${Table} columns=${columns} rows=${seen} label="Dead letters" sort=${{ key: "timestamp", down: true }} empty="No message of this group has died lately."/>
    ${dialog}<//>`
}
