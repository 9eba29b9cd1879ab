// All topics.

import { Badge, Button, Card, Empty, Field, Head, Table, go, html, link, useDialog, useRows } from "../ui.js"
import { count, rate, short } from "../format.js"
import { backlogOf, live, may, ratesOf, useLive } from "../live.js"
import { NewTopic } from "./declare.js"

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
  const { doc, sees } = useLive()
  const [dialog, open] = useDialog()
  const rows = useRows(doc, topics =>
      Object.entries(topics).map(([name, topic]) => ({
        id: name,
        name,
        depth: topic.depth ?? 0,
        in: ratesOf(name).in,
        backlog: backlogOf(topic),
        groups: Object.keys(topic.groups ?? {}).length,
        consumers: topic.consumerCount ?? 0,
        partitions: topic.partitionCount,
        paused: topic.paused,
      })),
  )
  const add =
    may("declare") &&
    html`<${Button} kind="main" onClick=${() => open(close => html`<${NewTopic} close=${close}/>`)}>New topic<//>`
  return html`
    <${Head} title="Topics" actions=${add}/>
    ${sees === "none" ? html`<${ByName}/>` : html`<${Card}><${Table} columns=${COLUMNS} rows=${rows} search="Search topics" label="Topics" empty="There are no topics yet."/><//>`}
    ${dialog}`
}

/** Whoever may see no list, and perhaps put messages. */
function ByName() {
  const submit = event => {
    event.preventDefault()
    go("topics", new FormData(event.target).get("topic").trim())
  }
  const topics = Object.keys(live.rights?.topics ?? {})
  return html`<${Card}><${Empty}>This token may not see figures. What it may do, it may on ${topics.join(", ") || "no topic"}.<//>
    <form class="finder" onSubmit=${submit}><${Field} label="Topic" wide><input name="topic" required list="named" autocomplete="off" spellcheck="false"/><//>
      <datalist id="named">${topics.filter(each => !each.endsWith("*")).map(each => html`<option value=${each} key=${each}/>`)}</datalist>
      <button type="submit">Open</button></form><//>`
}
