// The past of the charts: what the broker remembers, and after it what this page has seen itself.

import { html, useRef, useState } from "./vendor/preact-htm.js"
import { document_ } from "./api.js"
import { Chart } from "./chart.js"
import { clock, day, rate, short } from "./format.js"
import { KEPT, live, may, seesAll } from "./live.js"
import { Card, useAsked, useEvery } from "./ui.js"

const AGAIN_MS = 30_000

/** What each span is called, how far back it goes in words, and how a time of it is told. */
const SPANS = {
  live: ["10 min", "the last minutes", clock],
  hour: ["Hour", "the last hour", clock],
  day: ["Day", "the last day", ms => clock(ms).slice(0, 5)],
  week: ["Week", "the last week", ms => `${day(ms)} ${clock(ms).slice(0, 5)}`],
}

let chosen = "hour" // on all pages
let off = false // the broker keeps none

/** [the span that is chosen, how to choose another]. */
export function useSpan() {
  const [span, setSpan] = useState(chosen)
  return [span, name => setSpan((chosen = name))]
}

const SpanChoice = ({ span, choose }) => html`<div class="choice" role="group" aria-label="Time of the charts">
  ${Object.entries(SPANS).map(
    ([name, [text]]) => html`<button type="button" key=${name} aria-pressed=${name === span} onClick=${() => choose(name)}>${text}</button>`,
  )}</div>`

/** The choice of a span, and why there is no past if so. */
export const Past = ({ span, choose, note }) => html`<div class="past"><${SpanChoice} span=${span} choose=${choose}/>
  ${note && html`<p class="dim">${note}</p>`}</div>`

/** What charts of a span are drawn with. */
export const drawnAs = span => ({ key: span, over: SPANS[span][1], when: SPANS[span][2] })

/** `now`, the numbers of this moment, as a column each of all moments since the page was opened. */
export function useSeen(now) {
  const seen = useRef({ t: [], columns: {} }).current
  if (live.doc && live.sees !== "none" && seen.t.at(-1) !== live.doc.time) {
    seen.t.push(live.doc.time)
    for (const [name, value] of Object.entries(now)) (seen.columns[name] ??= []).push(value ?? null)
    if (seen.t.length > KEPT) for (const each of [seen.t, ...Object.values(seen.columns)]) each.shift()
  }
  return { t: seen.t, ...seen.columns }
}

/**
 * The past of a topic, a group of it or (without both) the server: {t, …columns, note}. `seen` are the
 * moments of this page, {t, …columns}: they go on where what the broker remembers ends.
 */
export function usePast({ topic, group, span, seen }) {
  const round = useEvery(AGAIN_MS)
  const allowed = may("server", topic, topic ? (group ?? null) : undefined) && (topic || seesAll())
  const wanted = allowed && !off && span !== "live"
  const [told] = useAsked(() => wanted && remembered({ topic, consume_group: group, span }), [topic, group, span, round])
  const fits = told && told.span === span && (told.topic ?? "") === (topic ?? "") && (told.consume_group ?? "") === (group ?? "")
  return { ...joined(fits ? told : null, seen), note: span === "live" ? "" : noteOf(fits && told, allowed) }
}

async function remembered(of) {
  try {
    return await document_("history", of)
  } catch (error) {
    off = error.status === 404 && /history=off/.test(error.message)
    throw error
  }
}

function noteOf(told, allowed) {
  if (off) return "This broker keeps no history: it was started with history=off. What you see is from this page."
  if (!allowed) return "This token may not see the history: what you see is from this page."
  return told?.untracked
    ? "The broker keeps the history of the 1,000 busiest topics and groups, and this one is not among them: what you see is from this page."
    : ""
}

/** A step is drawn at its end; that of now, which is not over, just before the present, which this page has seen. */
function joined(told, seen) {
  const names = Object.keys(seen).filter(name => name !== "t")
  const past = told ? [...new Set([...names, ...Object.keys(told).filter(name => Array.isArray(told[name]))])] : names
  const length = told ? Math.max(...past.map(name => (told[name] ?? []).findLastIndex(value => value !== null) + 1), 0) : 0
  const now = seen.t.at(-1) ?? Date.now()
  const times = Array.from({ length }, (_, n) => Math.min(told.start + (n + 1) * told.stepMs, now - 1))
  const last = times.at(-1) ?? 0
  const from = seen.t.findIndex(time => time > last)
  const rest = from < 0 ? [] : seen.t.slice(from)
  const found = { t: [...times, ...rest] }
  for (const name of past) {
    const before = told?.[name]?.slice(0, length) ?? Array(length).fill(null)
    found[name] = [...before, ...(seen[name]?.slice(seen.t.length - rest.length) ?? Array(rest.length).fill(null))]
  }
  return found
}

/** The charts of a topic, or of the server: rates, the backlog, and `more(past, as)`. */
export function Charts({ topic, seen, more = () => null }) {
  const [span, choose] = useSpan()
  const past = usePast({ topic, span, seen })
  const as = drawnAs(span)
  return html`
    <${Past} span=${span} choose=${choose} note=${past.note}/>
    <div class="two">
      <${Card}><${Chart} ...${as} title="Messages a second" show=${rate}
        series=${[
          { label: "in", colour: "--one", fill: true },
          { label: "out", colour: "--two" },
        ]} data=${[past.t, past.in, past.out]}/><//>
      <${Card}><${Chart} ...${as} title="Backlog" show=${short} series=${[{ label: "waiting", colour: "--three", fill: true }]}
        data=${[past.t, past.backlog]}/><//>
      ${more(past, as)}
    </div>`
}
