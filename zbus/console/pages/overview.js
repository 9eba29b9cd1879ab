// How the broker is, at a glance.

import { Button, Card, Empty, Head, Tile, Tiles, html, link, useState } from "../ui.js"
import { Chart } from "../chart.js"
import { away, bytes, count, moment, plural, rate, short, span } from "../format.js"
import { ratesOf, useLive } from "../live.js"

const BUSIEST = 8

export function Overview() {
  const { doc, rates, history, sees } = useLive()
  if (!doc) return html`<${Empty}>Waiting for the first figures …<//>`
  const topics = Object.entries(doc.topics)
  const known = sees !== "none"
  const low = doc.diskFreeBytes < 2 * (doc.diskFreeMinBytes ?? 0)
  return html`
    <${Head} title="Overview"/>
    ${
      sees === "all"
        ? html`<${Warnings} warnings=${doc.warnings ?? []} count=${doc.warningCount ?? 0}/>`
        : html`<${Card}><p class="unfigured">This token may not see figures: that takes the operation <code>server</code>.${
            known ? " What is here is what the documents of its topics tell." : ""
          }</p><//>`
    }
    <${Tiles}>
      <${Tile} label="Messages in" value=${rate(rates.in)} note="a second"/>
      <${Tile} label="Messages out" value=${rate(rates.out)} note="a second"/>
      <${Tile} label="Backlog" value=${short(known ? history.backlog.at(-1) : null)} note="messages wait"/>
      <${Tile} label="Topics" value=${short(known ? topics.length : null)} note=${
        known &&
        plural(
          topics.reduce((n, [, t]) => n + Object.keys(t.groups ?? {}).length, 0),
          "group",
        )
      }/>
      ${doc.connectionCount != null && html`<${Tile} label="Connections" value=${short(doc.connectionCount)}/>`}
      ${doc.syncMs && html`<${Tile} label="Sync, 99 %" value=${span(doc.syncMs.p99)} note=${`median ${span(doc.syncMs.p50)}`}/>`}
      ${
        doc.engine
          ? html`<${Tile} label="Stream" value=${bytes(doc.engine.bytes)} note=${noteOf(doc.engine)} kind=${low || doc.engine.inDoubt ? "low" : ""}/>`
          : doc.diskFreeBytes != null &&
            html`<${Tile} label="Disk free" value=${bytes(doc.diskFreeBytes)} note=${`of ${bytes(doc.diskTotalBytes)}`} kind=${low ? "low" : ""}/>`
      }
      ${doc.memoryBytes != null && html`<${Tile} label="Memory" value=${bytes(doc.memoryBytes)} note=${doc.memoryTotalBytes && `of ${bytes(doc.memoryTotalBytes)}`}/>`}
    <//>
    ${known && html`<${Moving} topics=${topics} history=${history}/>`}
    <p class="dim foot">${doc.startTime && `Up since ${moment(doc.startTime).slice(0, 16)}, ${away(doc.startTime, doc.time)}. `}${
      doc.draining ? "It is draining: it will stop. " : ""
    }${doc.engine ? `Messages are kept in ${doc.engine.address.replaceAll(",", ", ")}. ` : ""}${doc.cpuMs != null && doc.startTime ? `Processor: ${Math.round((100 * doc.cpuMs) / Math.max(1, doc.time - doc.startTime))} % on average.` : ""}</p>`
}

const noteOf = ({ bytesMax, epoch, inDoubt, sequence }) =>
  `${bytesMax ? `of ${bytes(bytesMax)}, ` : ""}epoch ${count(epoch)}, ${inDoubt ? "a write is in doubt" : `message ${count(sequence)}`}`

const Moving = ({ topics, history }) => html`
    <div class="two">
      <${Card}><${Chart} title="Messages a second" show=${rate}
        series=${[
          { label: "in", colour: "--one", fill: true },
          { label: "out", colour: "--two" },
        ]} data=${[history.t, history.in, history.out]}/><//>
      <${Card}><${Chart} title="Backlog" show=${short} series=${[{ label: "waiting", colour: "--three", fill: true }]}
        data=${[history.t, history.backlog]}/><//>
    </div>
    <div class="two">
      <${Furthest} topics=${topics}/>
      <${Busiest} topics=${topics}/>
    </div>`

const LISTED = 4

/** The worst first, so that a few of them do not hide the figures; `count` are there, of which the broker lists
 * the first. */
function Warnings({ warnings, count }) {
  const [all, setAll] = useState(false)
  if (!warnings.length) return html`<p class="fine"><span aria-hidden="true">✓</span> Nothing needs your attention.</p>`
  const seen = all ? warnings : warnings.slice(0, LISTED)
  const more = Math.max(count, warnings.length) - seen.length
  return html`<ul class="warnings" aria-label="Warnings">${seen.map(
    (each, n) => html`<li key=${n}>
    <span>${each.text}</span>${each.topic && html`<a href=${each.group ? link("topics", each.topic, "groups", each.group) : link("topics", each.topic)}>Look at it</a>`}</li>`,
  )}
    ${more > 0 && !all && html`<li class="rest"><${Button} onClick=${() => setAll(true)}>${plural(more, "more warning")}<//></li>`}
    ${all && html`<li class="rest">${more > 0 && html`<span>${plural(more, "more is", "more are")} not listed. </span>`}<${Button} onClick=${() => setAll(false)}>Fewer<//></li>`}
  </ul>`
}

function Furthest({ topics }) {
  const rows = topics
    .flatMap(([topic, told]) => Object.entries(told.groups ?? {}).map(([group, of]) => ({ topic, group, ...of })))
    .filter(each => each.ready > 0 && !each.unclaimed)
    .sort((a, b) => b.ready - a.ready)
    .slice(0, BUSIEST)
  return html`<${Card} title="Groups that are behind">
    ${
      rows.length === 0
        ? html`<${Empty}>Every group has read everything.<//>`
        : html`<table class="plain"><thead><tr><th scope="col">Group</th>
      <th scope="col">Topic</th><th scope="col" class="n">Waiting</th></tr></thead><tbody>${rows.map(
        each => html`<tr key=${each.topic + "\n" + each.group}>
      <td><a href=${link("topics", each.topic, "groups", each.group)}>${each.group}</a></td><td>${each.topic}</td>
      <td class="n">${short(each.ready)}</td></tr>`,
      )}</tbody></table>`
    }<//>`
}

function Busiest({ topics }) {
  const rows = topics
    .map(([name, told]) => ({ name, ...told, now: ratesOf(name).in }))
    .sort((a, b) => (b.now ?? 0) - (a.now ?? 0) || (b.inCount ?? 0) - (a.inCount ?? 0))
    .slice(0, BUSIEST)
  return html`<${Card} title="Busiest topics">
    ${
      rows.length === 0
        ? html`<${Empty}>There are no topics yet. <a href="#/topics">Make one</a>.<//>`
        : html`<table class="plain"><thead><tr><th scope="col">Topic</th>
      <th scope="col" class="n">In, a second</th><th scope="col" class="n">Stored</th></tr></thead><tbody>${rows.map(
        each => html`<tr key=${each.name}>
      <td><a href=${link("topics", each.name)}>${each.name}</a></td><td class="n">${rate(each.now)}</td>
      <td class="n">${short(each.depth)}</td></tr>`,
      )}</tbody></table>`
    }<//>`
}
