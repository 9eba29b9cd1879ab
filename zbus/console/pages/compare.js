// Two groups side by side: of one topic, or of two.

import { Badge, Card, Empty, Field, Head, Problem, go, html, link, useAsked, useEvery, useState } from "../ui.js"
import { document_ } from "../api.js"
import { Chart } from "../chart.js"
import { count, rate, short } from "../format.js"
import { Past, drawnAs, usePast, useSeen, useSpan } from "../history.js"
import { may, ratesOfGroup, useLive } from "../live.js"
import { SAID } from "./group.js"

const EVERY_MS = 2_000
const OFFERED = 50
const LINES = ["--one", "--two"]

const SETTINGS = { ...SAID, onLoss: ["When a connection is lost, leases", loss], push: ["Webhook", push => push.url] }
delete SETTINGS.createdTime
delete SETTINGS.lastUpdatedTime

function loss(value) {
  return value === "front" ? "go back in front" : "are kept until they end"
}

const NOW = {
  messageCount: ["Waiting", count],
  leasedCount: ["Leased", count],
  delayedCount: ["Delayed", count],
  deadCount: ["Dead, ever", count],
  skippedCount: ["Skipped", count],
}

export function Compare({ at: [, ...names] }) {
  const [topic, group, otherTopic, otherGroup] = names
  const sides = [
    { topic, group },
    { topic: otherTopic, group: otherGroup },
  ]
  return html`
    <${Head} title="Compare groups" path=${[
      ["Topics", "#/topics"],
      [topic, link("topics", topic)],
      [group, link("topics", topic, "groups", group)],
    ]}/>
    <${Choice} topic=${topic} group=${group} other=${sides[1]}/>
    ${otherGroup !== undefined ? html`<${Both} sides=${sides}/>` : html`<${Card}><${Empty}>Choose the group that it is compared with.<//><//>`}`
}

/** With which group: a topic is typed, and of ten thousand those are offered that have the text in their name. */
function Choice({ topic, group, other }) {
  const { doc } = useLive()
  const [typed, setTyped] = useState(other.topic ?? topic)
  const topics = Object.keys(doc?.topics ?? {})
  const text = typed.trim().toLowerCase()
  const offered = topics.filter(name => name.toLowerCase().includes(text)).slice(0, OFFERED)
  const found = topics.find(name => name.toLowerCase() === text)
  const groups = Object.keys(doc?.topics[found]?.groups ?? {}).filter(name => found !== topic || name !== group)
  const chosen = found === other.topic ? other.group : undefined
  return html`<${Card}><div class="fields">
    <${Field} label="With a group of the topic"><input list="compared" value=${typed} autocomplete="off" spellcheck="false"
      onInput=${event => setTyped(event.target.value)}/><//>
    <datalist id="compared">${offered.map(name => html`<option value=${name} key=${name}/>`)}</datalist>
    <${Field} label="Group"><select value=${chosen ?? ""} onChange=${event => go("compare", topic, group, found, event.target.value)}>
      ${chosen === undefined && html`<option value="" key="">${groups.length ? "Choose one" : "It has no other group"}</option>`}
      ${groups.map(name => html`<option value=${name} key=${name}>${name}</option>`)}</select><//></div><//>`
}

function Both({ sides }) {
  const round = useEvery(EVERY_MS)
  const { state } = useLive()
  const asked = sides.map(({ topic, group }) =>
    useAsked(() => document_("query", { topic, consume_group: group }), [topic, group, state, round]),
  )
  const [infos, errors] = [0, 1].map(n => asked.map(each => each[n]))
  const names = sides.map(({ topic, group }) => (sides[0].topic === sides[1].topic ? group : `${topic} / ${group}`))
  return html`
    ${errors.map((error, n) => html`<${Problem} key=${n} error=${error}/>`)}
    <${Rates} sides=${sides} names=${names}/>
    ${
      infos[0] &&
      infos[1] &&
      html`
      <${Card} title="Now"><${Side} names=${names} sides=${sides} rows=${rowsOf(NOW, infos)} label="Now" first="Messages"/><//>
      <${Card} title="Positions"><${Positions} names=${names} sides=${sides} infos=${infos}/><//>
      <${Card} title="Settings"><${Side} names=${names} sides=${sides} rows=${rowsOf(SETTINGS, infos)} label="Settings" first="Setting" marked/><//>`
    }`
}

function rowsOf(as, infos) {
  return Object.entries(as)
    .filter(([key]) => infos.some(info => info[key] !== undefined))
    .map(([key, [label, show = String]]) => ({
      label,
      cells: infos.map(info => (info[key] === undefined ? "–" : show(info[key]))),
    }))
}

const Heads = ({ names, sides, first }) => html`<thead><tr><th scope="col">${first}</th>${names.map(
  (name, n) => html`<th scope="col" key=${n}><a href=${link("topics", sides[n].topic, "groups", sides[n].group)}>${name}</a></th>`,
)}</tr></thead>`

/** What differs is marked, and says so in words. */
const Side = ({ names, sides, rows, label, first, marked }) => html`<table class="plain sides" aria-label=${label}><${Heads} names=${names} sides=${sides} first=${first}/><tbody>${rows.map(({ label, cells }) => {
    const differs = marked && String(cells[0]) !== String(cells[1])
    return html`<tr key=${label} class=${differs ? "differs" : ""}><th scope="row">${label}${differs && html` <${Badge} kind="warn">differs<//>`}</th>
      ${cells.map((cell, n) => html`<td key=${n}>${cell}</td>`)}</tr>`
  })}</tbody></table>`

function Positions({ names, sides, infos }) {
  const [one, two] = infos.map(info => info.positions ?? [])
  const many = Math.max(one.length, two.length)
  const cell = at =>
    at
      ? html`<b>${count(at.cursor)}</b> of ${count(at.end)}<span class="dim">, ${count(at.ready)} wait${at.leased ? `, ${count(at.leased)} leased` : ""}</span>`
      : "–"
  return html`<table class="plain sides" aria-label="Positions"><${Heads} names=${names} sides=${sides} first="Partition"/>
    <tbody>${Array.from({ length: many }, (_, n) => html`<tr key=${n}><th scope="row">${n}</th><td>${cell(one[n])}</td><td>${cell(two[n])}</td></tr>`)}</tbody></table>`
}

function Rates({ sides, names }) {
  const { doc } = useLive()
  const [span, choose] = useSpan()
  const pasts = sides.map(({ topic, group }) => {
    const told = doc?.topics[topic]?.groups?.[group]
    const seen = useSeen({ ready: told?.ready, out: ratesOfGroup(topic, group).out })
    return usePast({ topic, group, span, seen })
  })
  const as = drawnAs(span)
  const series = names.map((label, n) => ({ label, colour: LINES[n] }))
  return html`
    <${Past} span=${span} choose=${choose} note=${pasts[0].note || pasts[1].note}/>
    <div class="two">
      <${Card}><${Chart} ...${as} title="Waiting" show=${short} series=${series} data=${aligned(pasts, "ready")}/><//>
      <${Card}><${Chart} ...${as} title="Out, a second" show=${rate} series=${series} data=${aligned(pasts, "out")}/><//>
    </div>`
}

/** Both over the moments of either. */
function aligned(pasts, column) {
  const times = [...new Set(pasts.flatMap(past => past.t))].sort((a, b) => a - b)
  const found = pasts.map(past => new Map(past.t.map((time, n) => [time, past[column]?.[n]])))
  return [times, ...found.map(values => times.map(time => values.get(time) ?? null))]
}
