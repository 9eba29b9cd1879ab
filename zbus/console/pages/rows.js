// Messages as a list: a line for each, of which one is open.

import { html, link, notify } from "../ui.js"
import { linesOf } from "../log.js"
import { bytes, count, moment, plural } from "../format.js"
import { Body } from "./body.js"

const PREVIEWED = 160

const preview = message =>
  message.body_base64 != null ? "binary" : message.body.slice(0, PREVIEWED).replace(/\s+/g, " ")

const HOW_IT_CAME = /^(sender|remote-addr|origin_[a-z]+)$/

const Headers = ({ of }) =>
  of.map(([name, value]) => html`<div key=${name}><dt><code>${name}</code></dt><dd><code>${value}</code></dd></div>`)

const placeOf = ({ partition, offset }) => `${partition}-${offset}`

/** Messages in a list, of which one may be open. `placed`: with their partition. */
export function Rows({ rows, topic, open, setOpen, placed, label }) {
  return html`<ol class="log" aria-label=${label}>${rows.map(each => {
    const key = placeOf(each)
    return html`<${Row} key=${key} message=${each} topic=${topic} placed=${placed} open=${open === key}
      toggle=${() => setOpen(open === key ? null : key)}/>`
  })}</ol>`
}

/** Save messages with whole bodies, as JSON lines. */
export async function download(topic, rows) {
  const [lines, many] = await linesOf(topic, rows)
  const url = URL.createObjectURL(new Blob(lines, { type: "application/x-ndjson" }))
  const link = Object.assign(document.createElement("a"), { href: url, download: `${topic}.ndjson` })
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
  const told = `${plural(many, "message")} in ${topic}.ndjson.`
  notify(many < rows.length ? `${told} There is no room for more in one file.` : told)
}

function Row({ message, open, toggle, topic, placed }) {
  const { offset, timestamp, id, tag, key, size } = message
  const headers = Object.entries(message.headers)
  const came = headers.filter(([name]) => HOW_IT_CAME.test(name))
  return html`<li class=${open ? "open" : ""}>
    <button type="button" class="row" aria-expanded=${open} onClick=${toggle}>
      <span class="offset">${placed ? placeOf(message) : count(offset)}</span><time>${moment(timestamp)}</time>
      <span class="preview">${tag && html`<span class="badge">${tag}</span> `}${message.body_base64 != null ? html`<i>binary</i>` : preview(message) || html`<i>empty</i>`}</span>
      <span class="size">${bytes(size)}</span>
    </button>
    ${
      open &&
      html`<div class="inside">
      <dl class="said"><div><dt>Id</dt><dd><code>${id}</code></dd></div>${tag && html`<div><dt>Tag</dt><dd><code>${tag}</code></dd></div>`}
        ${key && html`<div><dt>Key</dt><dd><code>${key}</code></dd></div>`}<div><dt>Partition</dt><dd>${message.partition}</dd></div>
        <${Headers} of=${headers.filter(([name]) => !HOW_IT_CAME.test(name))}/></dl>
      <${Body} message=${message}/>
      ${
        came.length > 0 &&
        html`<details class="more"><summary>How it came</summary><dl class="said"><${Headers} of=${came}/></dl></details>`
      }
      <p><a href=${link("why", topic, String(message.partition), String(offset))}>Why is it (not) delivered?</a></p></div>`
    }
  </li>`
}
