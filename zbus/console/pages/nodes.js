// The nodes of a cluster, and who owns which shard.

import {
  Badge,
  Button,
  Card,
  Empty,
  Field,
  FormDialog,
  Head,
  Problem,
  Table,
  html,
  useAsked,
  useDialog,
  useEvery,
} from "../ui.js"
import { change, document_ } from "../api.js"
import { count, span } from "../format.js"
import { may, seesAll } from "../live.js"

const EVERY_MS = 1_000

const NODES = [
  { key: "node", label: "Node", of: row => row.node, class: "name" },
  {
    key: "state",
    label: "State",
    class: "whole",
    of: row => (row.live ? row.sinceMs : -row.sinceMs),
    show: row =>
      html`<span><${Badge} kind=${row.live ? "good" : "bad"}>${row.live ? "live" : "gone"}<//> for ${span(row.sinceMs)}</span>`,
  },
  { key: "shards", label: "Shards", number: true, of: row => row.shards.length, show: row => row.shards.join(", ") || "none" },
  { key: "spares", label: "Spares", number: true, of: row => row.spares },
  { key: "address", label: "Clients reach it at", class: "whole", of: row => row.address, show: row => html`<code>${row.address}</code>` },
  { key: "relay", label: "Nodes reach it at", class: "whole", of: row => row.relay ?? "", show: row => html`<code>${row.relay}</code>` },
  { key: "version", label: "Version", of: row => row.version ?? "" },
]

const SHARDS = [
  { key: "shard", label: "Shard", number: true, of: row => row.shard },
  {
    key: "owner",
    label: "Owner",
    class: "name",
    of: row => row.node ?? "",
    show: row =>
      html`<span>${row.node ?? html`<${Badge} kind="bad">none<//>`}${row.opening && html` <${Badge} kind="warn">${row.opening} reads it<//>`}${row.moved && html` <${Badge}>moved by hand<//>`}${row.movingTo && html` <${Badge} kind="warn">moves to ${row.movingTo}<//>`}${row.lateMs > 0 && html` <${Badge} kind="bad">unconfirmed for ${span(row.lateMs)}<//>`}</span>`,
  },
  { key: "epoch", label: "Epoch", number: true, of: row => row.epoch ?? 0 },
  {
    key: "since",
    label: "For",
    number: true,
    of: row => row.sinceMs ?? 0,
    show: row => (row.node ? span(row.sinceMs) : ""),
  },
  { key: "sequence", label: "Confirmed", number: true, of: row => row.sequence ?? 0, show: row => count(row.sequence) },
]

export function Nodes() {
  const round = useEvery(EVERY_MS)
  const [dialog, open] = useDialog()
  const [found, error, again] = useAsked(() => document_("cluster"), [round])
  const move =
    shard =>
    done => html`<${FormDialog} title=${`Move shard ${shard.shard}`} submit="Move it" close=${done} done="It is on its way."
    call=${async form => (await change("move", { shard: shard.shard, to: form.to }), again())}>
    <p>Its owner answers what is open and gives it up; requests that come meanwhile wait. It stays where it is moved to until its process ends.</p>
    <${Field} label="To the node"><select name="to">${found.nodes
      .filter(each => each.live && each.node !== shard.node)
      .map(each => html`<option key=${each.node} value=${each.node}>${each.node}</option>`)}</select><//><//>`
  const shards = may("move")
    ? [...SHARDS, { key: "do", label: "", class: "do", show: row => html`<${Button} onClick=${() => open(move(row))}>Move<//>` }]
    : SHARDS
  return html`
    <${Head} title="Nodes"/>
    ${
      !seesAll() || !may("server")
        ? html`<${Card}><${Empty}>Nodes are shown to whoever may see every topic.<//><//>`
        : html`
      <${Problem} error=${error}/>
      ${
        found &&
        html`<p class="dim">The cluster <code>${found.cluster}</code>, as node <code>${found.asked}</code> knows it. A spare is a process that waits to claim a shard.</p>
        ${found.warnings.map(text => html`<p class="problem" key=${text}>${text}</p>`)}
        <${Card} title="Nodes"><${Table} columns=${NODES} rows=${found.nodes.map(each => ({ ...each, id: each.node }))} label="Nodes" sort=${{ key: "node", down: false }}/><//>
        <${Card} title="Shards"><${Table} columns=${shards} rows=${found.shards.map(each => ({ ...each, id: each.shard }))} label="Shards" sort=${{ key: "shard", down: false }}/><//>`
      }`
    }
    ${dialog}`
}
