// All groups of all topics.

import { Badge, Card, Head, Table, html, link, useRows } from "../ui.js"
import { away, count, short } from "../format.js"
import { live, useLive } from "../live.js"

/** The count is of all time; the broker warns as long as there is something to do about it. */
const warnedOfDead = ({ topic, group }) =>
  live.doc?.warnings?.some(each => each.kind === "dead" && each.topic === topic && each.group === group)

const figure = (key, label) => ({
  key,
  label,
  number: true,
  of: row => row[key] ?? 0,
  show: row => short(row[key] ?? 0),
})

export const COLUMNS = [
  {
    key: "group",
    label: "Group",
    of: row => row.group,
    find: true,
    class: "name",
    show: row =>
      html`<a href=${link("topics", row.topic, "groups", row.group)}>${row.group}</a>${row.paused && html` <${Badge} kind="warn">paused<//>`}${row.unclaimed && html` <${Badge}>never read<//>`}`,
  },
  {
    key: "topic",
    label: "Topic",
    of: row => row.topic,
    find: true,
    class: "name",
    show: row => html`<a href=${link("topics", row.topic)}>${row.topic}</a>`,
  },
  {
    ...figure("ready", "Waiting"),
    of: row => (row.unclaimed ? -1 : (row.ready ?? 0)), // nobody is behind in it
    show: row => html`<span class=${row.unclaimed ? "dim" : ""}>${short(row.ready ?? 0)}</span>`,
  },
  figure("leased", "Leased"),
  figure("delayed", "Delayed"),
  {
    key: "dead",
    label: "Dead",
    number: true,
    of: row => row.dead ?? 0,
    show: row => html`<span class=${warnedOfDead(row) ? "alarming" : ""}>${short(row.dead ?? 0)}</span>`,
  },
  figure("consumers", "Readers"),
  {
    key: "lastReadTime",
    label: "Last read",
    number: true,
    of: row => row.lastReadTime ?? 0,
    show: row => (row.lastReadTime ? away(row.lastReadTime) : "–"),
  },
]

export const rowsOf = (topic, told) =>
  Object.entries(told.groups ?? {}).map(([group, of]) => ({ ...of, id: topic + "\n" + group, topic, group }))

export function Groups() {
  const { doc, sees } = useLive()
  const rows = useRows(doc, topics => Object.entries(topics).flatMap(([topic, told]) => rowsOf(topic, told)))
  return html`
    <${Head} title="Groups" badges=${html`<span class="dim">${count(rows.length)} in all</span>`}/>
    <${Card}><${Table} columns=${COLUMNS} rows=${rows} sort=${{ key: "ready", down: true }} search="Search groups and topics" label="Groups"
      empty=${sees === "none" ? "This token may not see figures." : "No group reads anything yet."}/><//>`
}
