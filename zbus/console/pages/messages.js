// The log of a topic, as it is: looked at with `read`, which no reader notices.

import { Button, Card, Empty, Field, Problem, html, link, useAsked, useEffect, useState } from "../ui.js"
import { ends, messages, offsetAt, placeOf } from "../api.js"
import { bytes, count, moment } from "../format.js"
import { may } from "../live.js"
import { Body } from "./body.js"

const PAGE = 25
const PREVIEWED = 160

export function Messages(props) {
  if (may("consume", props.topic, null)) return html`<${Log} ...${props}/>`
  return html`<${Card}><${Empty}>This token may not look at the messages of all groups.<//><//>`
}

function Log({ topic, info, depth }) {
  const [partition, setPartition] = useState(0)
  const [from, setFrom] = useState(null) // null: the newest
  const [open, setOpen] = useState(null)
  const [found, setFound] = useState(null)
  // The newest are followed as they come, as long as none is looked at.
  const [seen, setSeen] = useState(depth)
  useEffect(() => void (from === null && open === null && depth !== undefined && setSeen(depth)), [depth, from, open])
  const [shown, error, again] = useAsked(async () => {
    const place = await ends(topic, partition)
    const start =
      from === null ? Math.max(place.first, place.end - PAGE) : Math.min(Math.max(from, place.first), place.end)
    const end = Math.min(start + PAGE, place.end)
    const rows = await messages(topic, partition, start, end)
    return { ...place, start, next: end, rows: from === null ? rows.reverse() : rows }
  }, [topic, partition, from, seen])
  const move = to => (setFrom(to), setOpen(null), setFound(null))
  const jump = (to, where = partition, chosen = null) => {
    setPartition(where)
    setFrom(to)
    setOpen(chosen)
  }
  return html`<${Card} title="Messages" kind="messages">
    <${Finder} topic=${topic} info=${info} partition=${partition} setPartition=${n => (setPartition(n), move(null))} jump=${jump} note=${setFound}/>
    ${found && html`<p class="found" role="status">${found}</p>`}
    <${Problem} error=${error}/>
    ${
      shown &&
      html`
      <div class="bar pager">
        <span class="dim">${
          shown.rows.length
            ? `Offsets ${count(shown.start)} to ${count(shown.next - 1)} of ${count(shown.first)} to ${count(shown.end - 1)}`
            : shown.end > shown.first
              ? "There is nothing from there on."
              : "There are no messages."
        }</span>
        <span class="grow"></span>
        <${Button} onClick=${() => move(null)}>Newest<//>
        <${Button} onClick=${() => move(Math.max(shown.first, shown.start - PAGE))} disabled=${shown.start <= shown.first}>Older<//>
        <${Button} onClick=${() => move(shown.next)} disabled=${shown.next >= shown.end}>Newer<//>
        ${from !== null && html`<${Button} onClick=${again}>Again<//>`}
      </div>
      <ol class="log">${shown.rows.map(
        each => html`<${Row} key=${`${partition}-${each.offset}`} message=${each} open=${open === each.offset}
        toggle=${() => setOpen(open === each.offset ? null : each.offset)} topic=${topic}/>`,
      )}</ol>`
    }
  <//>`
}

function Finder({ topic, info, partition, setPartition, jump, note }) {
  const [by, setBy] = useState("offset")
  const [error, setError] = useState(null)
  const find = async event => {
    event.preventDefault()
    const text = new FormData(event.target).get("where").trim()
    setError(null)
    note(null)
    try {
      if (by === "offset") {
        if (!/^\d{1,15}$/.test(text)) throw new Error("An offset is a number.")
        jump(Number(text), partition, Number(text))
      } else if (by === "time") {
        const time = Date.parse(text)
        if (Number.isNaN(time)) throw new Error("That is no time.")
        jump(await offsetAt(topic, partition, time))
        note(`What was stored from ${moment(time)} on.`)
      } else {
        const place = await placeOf(topic, info, text)
        jump(place[1], place[0], place[1])
      }
    } catch (problem) {
      setError(problem)
    }
  }
  return html`<form class="finder" onSubmit=${find}>
    ${
      info.partitionCount > 1 &&
      html`<${Field} label="Partition"><select value=${partition} onChange=${event => setPartition(Number(event.target.value))}>
      ${Array.from({ length: info.partitionCount }, (_, n) => html`<option value=${n} key=${n}>${n}</option>`)}</select><//>`
    }
    <${Field} label="Find by"><select value=${by} onChange=${event => setBy(event.target.value)}>
      <option value="offset">offset</option><option value="time">time</option><option value="id">id</option></select><//>
    <${Field} label=${{ offset: "Offset", time: "Stored at or after", id: "Message id" }[by]} wide>
      <input name="where" key=${by} required autocomplete="off" ...${by === "time" ? { type: "datetime-local", step: "1" } : { inputmode: by === "offset" ? "numeric" : undefined }}/><//>
    <button type="submit">Go</button>
    <${Problem} error=${error}/>
  </form>`
}

const preview = message =>
  message.body_base64 != null ? "binary" : message.body.slice(0, PREVIEWED).replace(/\s+/g, " ")

const HOW_IT_CAME = /^(sender|remote-addr|origin_[a-z]+)$/

const Headers = ({ of }) =>
  of.map(([name, value]) => html`<div key=${name}><dt><code>${name}</code></dt><dd><code>${value}</code></dd></div>`)

function Row({ message, open, toggle, topic }) {
  const { offset, timestamp, id, tag, key, size } = message
  const headers = Object.entries(message.headers)
  const came = headers.filter(([name]) => HOW_IT_CAME.test(name))
  return html`<li class=${open ? "open" : ""}>
    <button type="button" class="row" aria-expanded=${open} onClick=${toggle}>
      <span class="offset">${count(offset)}</span><time>${moment(timestamp)}</time>
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
