// How the broker is, at a glance.

import { Button, Card, Empty, Head, Tile, Tiles, html, link, useState } from "../ui.js"
import { Charts } from "../history.js"
import { away, bytes, count, moment, plural, rate, short, span } from "../format.js"
import { ratesOf, useLive } from "../live.js"

const BUSIEST = 8

export function Overview() {
  const { doc, rates, history, sees, total } = useLive()
  if (!doc) return html`<${Empty}>Waiting for the first figures …<//>`
  const topics = doc.topics
  const known = sees !== "none"
  const low = doc.diskFreeBytes < 2 * (doc.diskFreeMinBytes ?? 0)
  return html`
    <${Head} title="Overview"/>
    ${
      sees === "all"
        ? html`<${Warnings} warnings=${doc.warnings ?? []} kinds=${doc.warningKinds ?? {}}/>`
        : html`<${Card}><p class="unfigured">This token may not see figures: that takes the operation <code>server</code>.${
            known ? " What is here is what the documents of its topics tell." : ""
          }</p><//>`
    }
    <${Tiles}>
      <${Tile} label="Messages in" value=${rate(rates.in)} note="a second"/>
      <${Tile} label="Messages out" value=${rate(rates.out)} note="a second"/>
      <${Tile} label="Backlog" value=${short(known ? history.backlog.at(-1) : null)} note="messages wait"/>
      <${Tile} label="Topics" value=${short(known ? Object.keys(topics).length : null)} note=${known && plural(total.groups, "group")}/>
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
    <${Charts} seen=${history}/>
    <div class="two">
      <${Furthest} topics=${topics}/>
      <${Busiest} topics=${topics}/>
    </div>`

/** What many warnings of a kind have in common; `groups` and `topics` are words that count them. */
const ALIKE = {
  dead: "have dead-lettered messages",
  idle: "have messages to read, and have not read for a minute or longer",
  paused: "are paused, and messages wait",
  stuck: "have as many messages leased as their windows allow, and acknowledge none",
  unread: "have no consumer, and messages wait",
  webhook: "have a webhook that fails",
}

/** The worst first, and a line for all of a kind: `kinds` tells how many there are, of which the broker lists the
 * first. */
function Warnings({ warnings, kinds }) {
  if (!warnings.length) return html`<p class="fine"><span aria-hidden="true">✓</span> Nothing needs your attention.</p>`
  const isMany = kind => kinds[kind]?.count > 1 && kind in ALIKE
  const lines = [...Map.groupBy(warnings, each => (isMany(each.kind) ? each.kind : each)).values()]
  return html`<ul class="warnings" aria-label="Warnings">${lines.map(some =>
    isMany(some[0].kind)
      ? html`<${Alike} key=${some[0].kind} some=${some} ...${kinds[some[0].kind]}/>`
      : html`<li key=${some[0].text}><${Warning} of=${some[0]}/></li>`,
  )}</ul>`
}

const Warning = ({ of }) =>
  html`<span>${of.text}</span>${of.topic && html`<a href=${of.group ? link("topics", of.topic, "groups", of.group) : link("topics", of.topic)}>Look at it</a>`}`

function Alike({ some, count, topics }) {
  const [open, setOpen] = useState(false)
  const [{ kind, topic }] = some
  const where = topics > 1 ? plural(topics, "topic") : `topic ${topic}`
  return html`<li class="alike"><span><b>${plural(count, "group")}</b> of ${where} ${ALIKE[kind]}.</span>
    <${Button} kind="quiet" aria-expanded=${open} onClick=${() => setOpen(!open)}>${open ? "Fewer" : "Which"}<//>
    ${
      open &&
      html`<ul>${some.map(each => html`<li key=${each.topic + "\n" + each.group}><${Warning} of=${each}/></li>`)}
      ${count > some.length && html`<li class="rest">${plural(count - some.length, "more is", "more are")} not listed; <a href="#/groups">all groups</a>.</li>`}</ul>`
    }</li>`
}

/** What sorting would put first, in one go over as many as there are. */
function first(items, before) {
  const found = []
  for (const item of items) {
    if (found.length === BUSIEST && !before(item, found.at(-1))) continue
    const at = found.findIndex(each => before(item, each))
    found.splice(at < 0 ? found.length : at, 0, item)
    if (found.length > BUSIEST) found.pop()
  }
  return found
}

function* waiting(topics) {
  for (const topic in topics)
    for (const group in topics[topic].groups) {
      const { ready, unclaimed } = topics[topic].groups[group]
      if (ready > 0 && !unclaimed) yield { topic, group, ready }
    }
}

function* moving(topics) {
  for (const name in topics) {
    const { inCount = 0, depth } = topics[name]
    yield { name, depth, inCount, now: ratesOf(name).in }
  }
}

function Furthest({ topics }) {
  const rows = first(waiting(topics), (a, b) => a.ready > b.ready)
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
  const rows = first(moving(topics), (a, b) => ((a.now ?? 0) - (b.now ?? 0) || a.inCount - b.inCount) > 0)
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
