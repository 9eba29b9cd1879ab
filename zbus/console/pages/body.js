// The body of a message: as text, as a tree of JSON, as bytes. Whoever wrote it may be hostile: all of
// it is shown as text, none of it becomes markup, and only so much of it at once.

import { Button, Empty, Problem, html, useAsked, useMemo, useState } from "../ui.js"
import { address, bytesOf, messages } from "../api.js"
import { bytes, count } from "../format.js"

const LOADED_BYTES = 1 << 20
const TEXT_SHOWN = 64 << 10
const ROWS_SHOWN = 256 // of 16 bytes
const CHILDREN_SHOWN = 100

/** `message` is as `read` tells it, cut; the rest is loaded when somebody wants it. */
export function Body({ message }) {
  const [all, setAll] = useState(false)
  const [loaded, error, , loading] = useAsked(
    async () =>
      all
        ? (await messages(message.topic, message.partition, message.offset, message.offset + 1, LOADED_BYTES))[0]
        : null,
    [all],
  )
  const told = loaded ?? message
  const size = told.size ?? 0
  const data = useMemo(() => bytesOf(told), [told])
  const value = useMemo(() => treeOf(told, data.length < size), [told])
  const forms = [...(value === undefined ? [] : [["json", "JSON"]]), ["text", "Text"], ["hex", "Hex"]]
  const [chosen, setChosen] = useState(null)
  const form = chosen ?? (told.body_base64 != null ? "hex" : forms[0][0])
  const cut = data.length < size
  const whole = address("consume", { topic: message.topic, partition: message.partition, offset: message.offset })
  return html`<div class="body">
    <div class="bar">
      <div class="choice" role="group" aria-label="Show the body as">${forms.map(
        ([name, label]) => html`<button type="button" key=${name}
        aria-pressed=${form === name} onClick=${() => setChosen(name)}>${label}</button>`,
      )}</div>
      <span class="dim">${bytes(size)}${cut ? `, the first ${bytes(data.length)} of it` : ""}</span>
      ${cut && !all && html`<${Button} onClick=${() => setAll(true)} disabled=${loading}>${size > LOADED_BYTES ? `Load ${bytes(LOADED_BYTES)}` : "Load all of it"}<//>`}
      ${size > 0 && html`<a href=${whole} download=${`${message.topic}-${message.partition}-${message.offset}`}>Download</a>`}
    </div>
    <${Problem} error=${error}/>
    ${
      size === 0
        ? html`<${Empty}>The body is empty.<//>`
        : form === "json" && value !== undefined
          ? html`<div class="tree code" tabindex="0" role="region" aria-label="Body as JSON"><${Tree} value=${value}/></div>`
          : form === "hex"
            ? html`<${Hex} data=${data}/>`
            : html`<${Text} data=${data} told=${told}/>`
    }
  </div>`
}

function Text({ data, told }) {
  const [shown, setShown] = useState(TEXT_SHOWN)
  const text = useMemo(() => told.body ?? new TextDecoder().decode(data), [data])
  return html`<pre class="code" tabindex="0" role="region" aria-label="Body as text">${text.slice(0, shown)}</pre>
    ${text.length > shown && html`<${Button} onClick=${() => setShown(n => n + 4 * TEXT_SHOWN)}>Show more<//>`}`
}

const two = n => n.toString(16).padStart(2, "0")

function Hex({ data }) {
  const [rows, setRows] = useState(ROWS_SHOWN)
  const text = useMemo(() => {
    const lines = []
    for (let at = 0; at < data.length && lines.length < rows; at += 16) {
      const row = data.subarray(at, at + 16)
      const hex = [...row].map(two).join(" ").padEnd(47)
      const seen = [...row].map(each => (each >= 32 && each < 127 ? String.fromCharCode(each) : "·")).join("")
      lines.push(`${at.toString(16).padStart(8, "0")}  ${hex}  ${seen}`)
    }
    return lines.join("\n")
  }, [data, rows])
  return html`<pre class="code hex" tabindex="0" role="region" aria-label="Body as bytes">${text}</pre>
    ${data.length > rows * 16 && html`<${Button} onClick=${() => setRows(n => n * 4)}>Show more<//>`}`
}

// -- a tree of JSON ------------------------------------------------------------------------

/** A number that would not be itself any more as a number of JavaScript. */
class Exactly {
  constructor(text) {
    this.text = text
  }
}

function treeOf(message, cut) {
  const text = message.body
  if (cut || !text || !/^\s*[[{]/.test(text)) return undefined
  try {
    return JSON.parse(text, (_, value, context) =>
      typeof value === "number" && context?.source && String(value) !== context.source
        ? new Exactly(context.source)
        : value,
    )
  } catch {
    return undefined // it is no JSON, or nested deeper than a browser goes
  }
}

const OPEN_DEPTH = 2
const OPEN_SIZE = 20

function Tree({ name, value, depth = 0 }) {
  const label = name === undefined ? "" : html`<span class="key">${name}</span>: `
  if (value === null || typeof value !== "object" || value instanceof Exactly)
    return html`<div class="leaf">${label}<${Leaf} value=${value}/></div>`
  return html`<${Branch} label=${label} value=${value} depth=${depth}/>`
}

const Leaf = ({ value }) =>
  value instanceof Exactly
    ? html`<span class="number">${value.text}</span>`
    : html`<span class=${value === null ? "null" : typeof value}>${JSON.stringify(value)}</span>`

function Branch({ label, value, depth }) {
  const [shown, setShown] = useState(CHILDREN_SHOWN)
  const list = Array.isArray(value)
  const keys = useMemo(() => (list ? null : Object.keys(value)), [value])
  const size = list ? value.length : keys.length
  const [open, setOpen] = useState(depth === 0 || (depth < OPEN_DEPTH && size <= OPEN_SIZE))
  const told = list ? `[${count(size)}]` : `{${count(size)}}`
  const children = () =>
    Array.from({ length: Math.min(shown, size) }, (_, n) =>
      list ? [n, value[n]] : [JSON.stringify(keys[n]), value[keys[n]]],
    )
  return html`<div class="branch"><button type="button" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <span aria-hidden="true">${open ? "▾" : "▸"}</span> ${label}<span class="dim">${told}</span></button>
    ${
      open &&
      html`<div class="children">${children().map(([key, each]) => html`<${Tree} key=${key} name=${key} value=${each} depth=${depth + 1}/>`)}
      ${size > shown && html`<${Button} onClick=${() => setShown(n => n * 4)}>${count(size - shown)} more<//>`}</div>`
    }
  </div>`
}
