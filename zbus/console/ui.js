// Parts that all pages are made of: tables, dialogs, forms, notices.

import { html, useState, useEffect, useRef, useMemo } from "./vendor/preact-htm.js"
import { Away } from "./api.js"

export { html, useState, useEffect, useRef, useMemo }

export const link = (...parts) => "#/" + parts.map(encodeURIComponent).join("/")
export const go = (...parts) => (location.hash = link(...parts))

// -- notices -------------------------------------------------------------------------------

let say = () => {}
export const notify = (text, kind = "good") => say({ text, kind, at: Date.now() })

/** What has just been done, or why not: told for a while, and to screen readers. */
export function Notices() {
  const [shown, setShown] = useState([])
  useEffect(() => {
    say = notice => {
      setShown(all => [...all.slice(-3), notice])
      const long = notice.kind === "bad" ? 12_000 : 5_000
      setTimeout(() => setShown(all => all.filter(each => each !== notice)), long)
    }
  }, [])
  return html`<div class="notices" role="status" aria-live="polite">
    ${shown.map(each => html`<p class=${"notice " + each.kind} key=${each.at}>${each.text}</p>`)}
  </div>`
}

/** Do it and say how it ended; true if it is done. */
export async function attempt(done, call) {
  try {
    await call()
    if (done) notify(done)
    return true
  } catch (error) {
    notify(error.message, "bad")
    return false
  }
}

/** What a call brings, and how to call it again: [value, error, again, loading]. */
export function useAsked(call, inputs) {
  const [state, setState] = useState({ value: undefined, error: null, loading: true })
  const [round, setRound] = useState(0)
  useEffect(() => {
    let current = true
    setState(old => ({ ...old, loading: true }))
    Promise.resolve()
      .then(call)
      .then(value => current && setState({ value, error: null, loading: false }))
      .catch(
        error =>
          current && setState(old => ({ value: error instanceof Away ? old.value : undefined, error, loading: false })),
      )
    return () => (current = false)
  }, [...inputs, round])
  return [state.value, state.error, () => setRound(n => n + 1), state.loading]
}

/** `round`, counted up every so many milliseconds while the page is seen. */
export function useEvery(ms) {
  const [round, setRound] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setRound(n => n + 1), ms)
    return () => clearInterval(timer)
  }, [ms])
  return round
}

const MANY = 2_000
const MANY_MS = 5_000

/** Rows of a table of all topics. Of many they are made anew every few seconds: the broker takes as long to tell of
 * each of them. */
export function useRows(doc, make) {
  const many = Object.keys(doc?.topics ?? {}).length > MANY
  return useMemo(() => make(doc?.topics ?? {}), [many ? Math.floor(doc.time / MANY_MS) : doc])
}

export const Problem = ({ error }) => error && html`<p class="problem" role="alert">${error.message}</p>`

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`

// -- small parts ---------------------------------------------------------------------------

export const Badge = ({ kind = "", children }) => html`<span class=${"badge " + kind}>${children}</span>`

export const Button = ({ kind = "", children, ...rest }) =>
  html`<button type="button" class=${kind} ...${rest}>${children}</button>`

export const Tile = ({ label, value, note, kind = "" }) => html`<div class=${"tile " + kind}>
  <dt>${label}</dt><dd><span class="value">${value}</span>${note && html`<span class="note">${note}</span>`}</dd>
</div>`

export const Tiles = ({ children }) => html`<dl class="tiles">${children}</dl>`

export const Card = ({ title, actions, children, kind = "" }) => html`<section class=${"card " + kind}>
  ${(title || actions) && html`<div class="card-head"><h2>${title}</h2><div class="actions">${actions}</div></div>`}
  ${children}
</section>`

export const Head = ({ title, path = [], badges, more, actions }) => {
  useEffect(() => void (document.title = `${title} · zbus`), [title])
  return html`<div class="head">
    <div>
      ${
        path.length > 0 &&
        html`<nav class="crumbs" aria-label="Where this is">
        ${path.map(([text, to]) => html`<a href=${to} key=${to}>${text}</a><span aria-hidden="true">/</span>`)}</nav>`
      }
      <h1>${title}</h1>${badges && html`<span class="badges">${badges}</span>`}${more && html` <span class="beside">${more}</span>`}
    </div>
    <div class="actions">${actions}</div>
  </div>`
}

/** Where a row of links is wider than the screen, the one of this page is in the middle. */
export function reveal(current) {
  const row = current?.parentElement
  if (row) row.scrollLeft = current.offsetLeft - row.offsetLeft - (row.clientWidth - current.clientWidth) / 2
}

export function Tabs({ tabs, now, label }) {
  const row = useRef()
  useEffect(() => reveal(row.current.querySelector("[aria-current]")), [now])
  return html`<nav class="tabs" aria-label=${label} ref=${row}>
    ${tabs.map(([name, text, to]) => html`<a href=${to} key=${name} aria-current=${name === now ? "page" : undefined}>${text}</a>`)}
  </nav>`
}

/** Text in which what stands between backticks is code. */
export const marked = text => text.split("`").map((part, n) => (n % 2 ? html`<code key=${n}>${part}</code>` : part))

export const Field = ({ label, hint, children, wide }) => html`<label class=${"field" + (wide ? " wide" : "")}>
  <span>${label}</span>${children}${hint && html`<small>${hint}</small>`}</label>`

export function yes(value) {
  return value ? "yes" : "no"
}

/** Settings in words: `as` has a label for each, and how it is told. */
export const Said = ({ of, as }) => html`<dl class="said">${Object.entries(as).map(
  ([key, [label, show = String]]) =>
    of[key] !== undefined && html`<div key=${key}><dt>${label}</dt><dd>${show(of[key])}</dd></div>`,
)}</dl>`

// -- tables --------------------------------------------------------------------------------

const PAGE = 50

/**
 * A table in pages, so that ten thousand rows cost no more than fifty.
 *
 * `columns` are {key, label, of, show, number}: `of` is what is sorted by, `show` what is seen.
 * Text that is searched for is that of the columns with `find`.
 */
export function Table({ columns, rows, search, sort, label, empty = "Nothing is here yet.", id }) {
  const [wanted, setWanted] = useState("")
  const [order, setOrder] = useState(sort ?? { key: columns[0].key, down: false })
  const [page, setPage] = useState(0)
  const found = useMemo(() => sorted(matching(rows, columns, wanted), columns, order), [rows, wanted, order])
  const last = Math.max(0, Math.ceil(found.length / PAGE) - 1)
  const at = Math.min(page, last)
  const by = key =>
    setOrder(old => ({ key, down: old.key === key ? !old.down : columns.find(c => c.key === key).number === true }))
  return html`
    ${
      search &&
      html`<div class="bar"><input type="search" aria-label=${search} placeholder=${search} value=${wanted}
      onInput=${event => (setWanted(event.target.value), setPage(0))}/>
      <span class="dim" role="status">${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}</span></div>`
    }
    <div class="sheet" tabindex="0" role="region" aria-label=${label}><table id=${id}>
      <thead><tr>${columns.map(
        column => html`<th scope="col" class=${column.number ? "n" : ""} key=${column.key}
          aria-sort=${order.key === column.key ? (order.down ? "descending" : "ascending") : undefined}>
        ${
          column.of
            ? html`<button type="button" onClick=${() => by(column.key)}>${column.label}<span aria-hidden="true">${
                order.key === column.key ? (order.down ? " ↓" : " ↑") : ""
              }</span></button>`
            : column.label || html`<span class="unseen">Actions</span>`
        }</th>`,
      )}</tr></thead>
      <tbody>${found.slice(at * PAGE, at * PAGE + PAGE).map(
        row => html`<tr key=${row.id}>
        ${columns.map(
          column =>
            html`<td class=${(column.number ? "n " : "") + (column.class ?? "")} data-label=${column.label} key=${column.key}>${
              column.show ? column.show(row) : column.of(row)
            }</td>`,
        )}</tr>`,
      )}</tbody>
    </table></div>
    ${found.length === 0 && html`<${Empty}>${wanted ? `Nothing matches “${wanted}”.` : empty}<//>`}
    ${
      last > 0 &&
      html`<div class="bar pager">
      <${Button} disabled=${at === 0} onClick=${() => setPage(at - 1)}>Previous<//>
      <span>Page ${at + 1} of ${last + 1}</span>
      <${Button} disabled=${at === last} onClick=${() => setPage(at + 1)}>Next<//></div>`
    }`
}

function matching(rows, columns, wanted) {
  const text = wanted.trim().toLowerCase()
  if (!text) return rows
  const finds = columns.filter(column => column.find)
  return rows.filter(row => finds.some(column => String(column.of(row)).toLowerCase().includes(text)))
}

const WORDS = new Intl.Collator("en", { numeric: true })

function sorted(rows, columns, { key, down }) {
  const column = columns.find(each => each.key === key)
  const sign = down ? -1 : 1
  const compare = (a, b) =>
    typeof a === "string" || typeof b === "string" ? WORDS.compare(a ?? "", b ?? "") : (a ?? -1) - (b ?? -1)
  return rows
    .map(row => [column.of(row), row])
    .sort((a, b) => sign * compare(a[0], b[0]))
    .map(each => each[1])
}

// -- dialogs -------------------------------------------------------------------------------

export function Dialog({ title, close, children }) {
  const box = useRef()
  useEffect(() => {
    const opener = document.activeElement
    const dialog = box.current
    dialog.showModal()
    return () => {
      dialog.close() // as long as it is open, nothing behind it can be focused
      opener?.focus?.()
    }
  }, [])
  return html`<dialog ref=${box} onCancel=${event => (event.preventDefault(), close())} aria-label=${title}>
    <div class="dialog-head"><h2>${title}</h2>
      <button type="button" class="quiet" aria-label="Close" onClick=${close}>✕</button></div>
    ${children}
  </dialog>`
}

/** A form in a dialog. `call` gets what was filled in; the dialog closes when it is done. */
export function FormDialog({ title, close, submit, kind = "main", call, done, children, ready = true, refuse = "Cancel" }) {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState(null)
  const run = async event => {
    event.preventDefault()
    const form = Object.fromEntries(new FormData(event.target))
    setBusy(true)
    try {
      await call(form)
      if (done) notify(done)
      close()
    } catch (problem) {
      setError(problem)
      setBusy(false)
    }
  }
  return html`<${Dialog} title=${title} close=${close}><form onSubmit=${run}>
    ${children}
    <${Problem} error=${error}/>
    <div class="dialog-foot"><${Button} onClick=${close}>${refuse}<//>
      <button type="submit" class=${kind} disabled=${busy || !ready}>${submit}</button></div>
  </form><//>`
}

/** What cannot be undone is confirmed by typing the name of what it is about. */
export function ConfirmName({ title, name, text, submit, call, done, close }) {
  const [typed, setTyped] = useState("")
  return html`<${FormDialog} title=${title} close=${close} submit=${submit} kind="danger" call=${call} done=${done}
      ready=${typed === name}>
    <p>${text}</p>
    <${Field} label=${html`Type <code>${name}</code> to confirm`}>
      <input name="typed" value=${typed} autocomplete="off" spellcheck="false" autocapitalize="off"
        onInput=${event => setTyped(event.target.value)}/><//>
  <//>`
}

/** Which dialog is open, if one is: [the dialog or null, how to open one]. */
export function useDialog() {
  const [open, setOpen] = useState(null)
  const close = () => setOpen(null)
  return [open && open(close), draw => setOpen(() => draw)]
}
