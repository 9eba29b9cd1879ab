// The dead letters of a group: in the topic that it names for them, with what each died of.

import {
  Button,
  Card,
  Empty,
  Field,
  FormDialog,
  Problem,
  Table,
  attempt,
  html,
  link,
  useAsked,
  useDialog,
  useState,
} from "../ui.js"
import { ask, document_, ends, messages } from "../api.js"
import { away, bytes, moment } from "../format.js"
import { may } from "../live.js"

const LOOKED_AT = 500 // the newest of each partition

const REASONS = {
  expired: "its lease ended",
  "given back": "it was given back",
  lost: "its consumer was gone",
  attempts: "its attempts were used up",
}

const decoded = text => {
  try {
    return decodeURIComponent(text ?? "")
  } catch {
    return text
  }
}

export function Dead({ topic, group, info }) {
  const letter = info.deadLetter
  if (!letter)
    return html`<${Card} title="Dead letters"><${Empty}>This group has no dead-letter topic. ${
      info.maxAttempts ? "What it gives up is dropped." : "It hands a message out as often as it takes."
    }<//><//>`
  return html`<${Letters} topic=${topic} group=${group} letter=${letter}/>`
}

async function lettersOf(letter, topic, group) {
  const info = await document_("query", { topic: letter })
  const rows = []
  for (let partition = 0; partition < info.partitionCount; partition++) {
    const { first, end } = await ends(letter, partition)
    rows.push(...(await messages(letter, partition, Math.max(first, end - LOOKED_AT), end, 80)))
  }
  const mine = rows.filter(
    ({ headers }) => decoded(headers.dead_topic) === topic && decoded(headers.dead_group) === group,
  )
  return { info, rows: mine.map(each => ({ ...each, name: each.id, id: `${each.partition}-${each.offset}` })) }
}

function Letters({ topic, group, letter }) {
  const [told, error, again] = useAsked(() => lettersOf(letter, topic, group), [letter, topic, group])
  const [reader, setReader] = useState("")
  const [dialog, open] = useDialog()
  const groups = told?.info.consumeGroupList.map(each => each.groupName) ?? []
  const chosen = reader || groups[0]
  const mayRedrive = chosen && may("consume", letter, chosen) && may("produce", topic)
  const redrive = (params, close) =>
    attempt(null, async () => {
      const reply = await ask(
        "redrive",
        { topic: letter, consume_group: chosen, ...params },
        { method: "POST", body: "" },
      )
      const moved = reply.headers.get("count"),
        stayed = reply.headers.get("stayed")
      attempt(
        `${moved} of them were put back to where they come from${Number(stayed) ? `; ${stayed} could not be` : ""}.`,
        async () => {},
      )
      again()
    })
  const columns = [
    {
      key: "timestamp",
      label: "Died",
      of: row => row.timestamp,
      show: row => html`<span title=${moment(row.timestamp)}>${away(row.timestamp)}</span>`,
    },
    {
      key: "reason",
      label: "Because",
      of: row => row.headers.dead_reason ?? "",
      show: row => REASONS[row.headers.dead_reason] ?? row.headers.dead_reason,
    },
    { key: "attempts", label: "Attempts", number: true, of: row => Number(row.headers.dead_attempts) },
    { key: "was", label: "Was at", number: true, of: row => Number(row.headers.dead_offset) },
    { key: "name", label: "Id", of: row => row.name, show: row => html`<code>${row.name}</code>` },
    {
      key: "body",
      label: "Body",
      of: row => row.body ?? "",
      class: "preview",
      show: row => (row.body_base64 != null ? html`<i>binary, ${bytes(row.size)}</i>` : row.body),
    },
    ...(mayRedrive
      ? [
          {
            key: "do",
            label: "",
            class: "do",
            show: row =>
              html`<${Button} onClick=${() => redrive({ partition: row.partition, offset: row.offset })}>Redrive<//>`,
          },
        ]
      : []),
  ]
  const all =
    close => html`<${FormDialog} title="Redrive all" submit="Redrive" close=${close} call=${() => redrive({})}>
    <p>Up to a thousand messages of the group <code>${chosen}</code> of <code>${letter}</code> are put back to where each comes from, whichever group it died in.</p><//>`
  return html`<${Card} title="Dead letters" actions=${mayRedrive && html`<${Button} onClick=${() => open(all)}>Redrive all<//>`}>
    <p class="dim">They are in the topic <a href=${link("topics", letter)}>${letter}</a>. What was redriven stays in its log, and is finished there.</p>
    ${
      groups.length > 1 &&
      html`<div class="bar"><${Field} label="Redrive out of group"><select value=${chosen} onChange=${event => setReader(event.target.value)}>
      ${groups.map(each => html`<option key=${each} value=${each}>${each}</option>`)}</select><//></div>`
    }
    <${Problem} error=${error}/>
    <${Table} columns=${columns} rows=${told?.rows ?? []} label="Dead letters" sort=${{ key: "timestamp", down: true }} empty="No message of this group has died lately."/>
    ${dialog}<//>`
}
