// Who is connected.

import {
  Button,
  Card,
  Empty,
  FormDialog,
  Head,
  Problem,
  Table,
  html,
  link,
  useAsked,
  useDialog,
  useEvery,
  useRef,
} from "../ui.js"
import { ask, change } from "../api.js"
import { bare, bytes, moment, span } from "../format.js"
import { may, seesAll } from "../live.js"

const EVERY_MS = 2_000
const PAGE = 1_000
const MOST = 20_000

async function connections() {
  const rows = []
  let after
  do {
    const reply = await ask("connections", { count: PAGE, after })
    rows.push(...(await reply.json()))
    after = reply.headers.get("next")
  } while (after && rows.length < MOST)
  return { time: Date.now(), rows }
}

const COLUMNS = [
  {
    key: "address",
    label: "Address",
    of: row => row.address,
    find: true,
    class: "name",
    show: row => html`<code>${bare(row.address)}</code>${row.tls && html` <span class="badge">TLS</span>`}`,
  },
  { key: "user", label: "Who", told: row => row.user, of: row => row.user ?? "", find: true },
  { key: "face", label: "Speaks", of: row => row.dialect ?? row.kind ?? "", find: true },
  {
    key: "reads",
    label: "Reads",
    of: row => (row.reads ?? []).map(each => `${each.topic}/${each.group}`).join(" "),
    find: true,
    class: "reads",
    told: row => row.reads?.length,
    show: row =>
      (row.reads ?? []).map(
        each =>
          html`<a key=${each.topic + "\n" + each.group} href=${link("topics", each.topic, "groups", each.group)}>${each.topic} / ${each.group}</a> `,
      ),
  },
  {
    key: "bytes",
    label: "In / out, a second",
    number: true,
    class: "whole",
    told: row => row.inBytes !== undefined,
    of: row => (row.in ?? 0) + (row.out ?? 0),
    show: row => `${bytes(row.in)} / ${bytes(row.out)}`,
  },
  { key: "open", label: "Requests", number: true, of: row => row.openRequests ?? 0 },
  {
    key: "held",
    label: "Held",
    number: true,
    told: row => row.heldBytes > 0,
    of: row => row.heldBytes ?? 0,
    show: row => bytes(row.heldBytes ?? 0),
  },
  {
    key: "last",
    label: "Active",
    number: true,
    class: "whole",
    told: row => row.idleMs !== undefined,
    of: row => -row.idleMs,
    show: row => html`<span>${row.idleMs < 1000 ? "now" : `${span(row.idleMs)} ago`}<small title=${moment(row.since)}>for ${span(Date.now() - row.since)}</small></span>`,
  },
]

export function Connections() {
  const round = useEvery(EVERY_MS)
  const before = useRef(null)
  const [dialog, open] = useDialog()
  const [rows, error, again] = useAsked(async () => {
    const now = await connections()
    const old = before.current
    before.current = { time: now.time, by: new Map(now.rows.map(each => [each.id, each])) }
    const seconds = old ? (now.time - old.time) / 1000 : 0
    const a_second = (row, key) =>
      old?.by.has(row.id) && seconds > 0 ? Math.max(0, (row[key] - old.by.get(row.id)[key]) / seconds) : null
    return now.rows.map(row => ({ ...row, in: a_second(row, "inBytes"), out: a_second(row, "outBytes") }))
  }, [round])
  const close =
    row =>
    done => html`<${FormDialog} title="Close a connection" submit="Close it" kind="danger" close=${done} done="It was closed."
    call=${async () => (await change("disconnect", { session: row.id }), again())}>
    <p>The connection from <code>${bare(row.address)}</code> is closed. Its client may connect again.</p><//>`
  const told = COLUMNS.filter(each => !each.told || rows?.some(each.told))
  const columns = may("disconnect")
    ? [
        ...told,
        {
          key: "do",
          label: "",
          class: "do",
          show: row => html`<${Button} onClick=${() => open(close(row))}>Close<//>`,
        },
      ]
    : told
  return html`
    <${Head} title="Connections"/>
    ${
      !seesAll() || !may("server")
        ? html`<${Card}><${Empty}>Connections are shown to whoever may see every topic.<//><//>`
        : html`
      <${Problem} error=${error}/>
      ${rows && html`<${Card}><${Table} columns=${columns} rows=${rows} search="Search connections" label="Connections" sort=${{ key: "address", down: false }} empty="Nobody is connected."/><//>`}`
    }
    ${dialog}`
}
