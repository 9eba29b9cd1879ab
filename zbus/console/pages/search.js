// A search in a log: there is no index, so it looks at one message after another, and says how far it is.

import { Button, Empty, Field, Problem, attempt, html, useEffect, useRef, useState } from "../ui.js"
import { beginning, inOrder, search } from "../log.js"
import { count } from "../format.js"
import { Rows, download } from "./rows.js"

const SHOWN = 50

const FIELDS = [
  ["text", "Text in the body", "as it is written there"],
  ["tag", "Tag", "words and * or #, as a filter: eu.*"],
  ["key", "Key", "the whole key"],
  ["header", "Header", "a name, or name: text"],
]

export function Search({ topic, partitions, newest, placed, stored }) {
  const [wanted, setWanted] = useState(null)
  const [state, setState] = useState(null)
  const [busy, setBusy] = useState(null) // what stops it, while it goes on
  const [error, setError] = useState(null)
  const [open, setOpen] = useState(null)
  const [shown, setShown] = useState(SHOWN)
  const running = useRef()
  useEffect(() => () => running.current?.abort(), [topic, partitions, newest])
  const run = async (fields, from) => {
    running.current?.abort()
    const control = (running.current = new AbortController())
    setError(null)
    setBusy(control)
    try {
      await search(topic, fields, from, control.signal, next => control.signal.aborted || setState(next))
    } catch (problem) {
      if (!control.signal.aborted) setError(problem)
    }
    setBusy(now => (now === control ? null : now))
  }
  const begin = event => {
    event.preventDefault()
    const form = Object.fromEntries(new FormData(event.target))
    for (const name of ["since", "until"]) form[name] = form[name] && Date.parse(form[name])
    const fields = { ...form, newest: newest ? 1 : 0 }
    const from = beginning(partitions, stored)
    setWanted(fields)
    setState(from)
    setOpen(null)
    setShown(SHOWN)
    run(fields, from)
  }
  const stop = () => (busy.abort(), setBusy(null))
  const rows = state?.rows.toSorted(newest ? (a, b) => inOrder(b, a) : inOrder) ?? []
  return html`<form class="search" onSubmit=${begin}>
    <div class="fields">${FIELDS.map(
      ([name, label, hint]) =>
        html`<${Field} label=${label} key=${name}><input name=${name} placeholder=${hint} autocomplete="off" spellcheck="false" autocapitalize="off" maxlength="1000"/><//>`,
    )}
      <${Field} label="Stored at or after"><input name="since" type="datetime-local" step="1"/><//>
      <${Field} label="Stored before"><input name="until" type="datetime-local" step="1"/><//></div>
    <div class="bar"><button type="submit" class="main">Look for it</button>
      ${busy && html`<${Button} onClick=${stop}>Stop<//>`}
      ${!busy && state?.left.length > 0 && html`<${Button} onClick=${() => run(wanted, state)}>Go on<//>`}
      ${rows.length > 0 && html`<${Button} onClick=${() => attempt(null, () => download(topic, rows))}>Download<//>`}
      ${state && html`<${Progress} state=${state} busy=${busy}/>`}</div>
    <${Problem} error=${error}/>
  </form>
  ${
    rows.length > 0
      ? html`<${Rows} rows=${rows.slice(0, shown)} topic=${topic} open=${open} setOpen=${setOpen} placed=${placed} label="Messages that were found"/>`
      : state && !busy && !error && html`<${Empty}>${state.left.length ? "Nothing was found so far." : "No message fits."}<//>`
  }
  ${rows.length > shown && html`<${Button} onClick=${() => setShown(n => 2 * n)}>Show more<//>`}`
}

function Progress({ state, busy }) {
  const { scanned, all, rows, left } = state
  const found = `${count(rows.length)} found`
  const done = !busy && !left.length
  return html`<progress max=${Math.max(1, all)} value=${done ? Math.max(1, all) : scanned} aria-label="Messages that were looked at"></progress>
    <span class="dim" role="status" aria-live=${busy ? "off" : "polite"}>${
      busy || left.length
        ? `${count(scanned)} of ${count(all)} looked at, ${found}`
        : `${count(scanned)} looked at, ${found}`
    }</span>`
}
