// All topics.

import { Badge, Button, Card, Field, FormDialog, Head, Table, go, html, link, useDialog, useMemo } from "../ui.js"
import { change } from "../api.js"
import { count, rate, short } from "../format.js"
import { backlogOf, may, useLive } from "../live.js"

const COLUMNS = [
  {
    key: "name",
    label: "Topic",
    of: row => row.name,
    find: true,
    class: "name",
    show: row =>
      html`<a href=${link("topics", row.name)}>${row.name}</a>${row.paused && html` <${Badge} kind="warn">paused<//>`}`,
  },
  { key: "depth", label: "Stored", number: true, of: row => row.depth, show: row => count(row.depth) },
  { key: "in", label: "In, a second", number: true, of: row => row.in, show: row => rate(row.in) },
  { key: "backlog", label: "Backlog", number: true, of: row => row.backlog, show: row => short(row.backlog) },
  { key: "groups", label: "Groups", number: true, of: row => row.groups },
  { key: "consumers", label: "Readers", number: true, of: row => row.consumers },
  { key: "partitions", label: "Partitions", number: true, of: row => row.partitions },
]

export function Topics() {
  const { doc, rates } = useLive()
  const [dialog, open] = useDialog()
  const rows = useMemo(
    () =>
      Object.entries(doc?.topics ?? {}).map(([name, topic]) => ({
        id: name,
        name,
        depth: topic.depth ?? 0,
        in: rates.topics.get(name)?.in ?? 0,
        backlog: backlogOf(topic),
        groups: Object.keys(topic.groups ?? {}).length,
        consumers: topic.consumerCount ?? 0,
        partitions: topic.partitionCount,
        paused: topic.paused,
      })),
    [doc],
  )
  const add =
    may("declare") &&
    html`<${Button} kind="main" onClick=${() => open(close => html`<${NewTopic} close=${close}/>`)}>New topic<//>`
  return html`
    <${Head} title="Topics" actions=${add}/>
    <${Card}><${Table} columns=${COLUMNS} rows=${rows} search="Search topics" label="Topics" empty="There are no topics yet."/><//>
    ${dialog}`
}

function NewTopic({ close }) {
  const call = async form => {
    await change("declare", { ...form, topic: form.topic.trim() })
    go("topics", form.topic.trim())
  }
  return html`<${FormDialog} title="New topic" submit="Make it" close=${close} call=${call} done="The topic is there.">
    <${Field} label="Name"><input name="topic" required maxlength="200" autocomplete="off" spellcheck="false"/><//>
    <div class="fields">
      <${Field} label="Durability" hint="What a reply to a producer waits for">
        <select name="durability"><option value="">as the broker has it</option><option>memory</option><option>os</option><option>disk</option></select><//>
      <${Field} label="Partitions"><input name="partitions" type="number" min="1" placeholder="1"/><//>
      <${Field} label="Keep for, ms" hint="0 or empty: for ever"><input name="retention_ms" type="number" min="0"/><//>
      <${Field} label="Remember ids for, ms" hint="So that no message is stored twice"><input name="dedupe_ms" type="number" min="0"/><//>
    </div>
  <//>`
}
