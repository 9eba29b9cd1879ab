// The log of a topic, as it is: looked at with `read`, which no reader notices.

import { Button, Card, Empty, Field, Problem, attempt, html, useAsked, useEffect, useMemo, useState } from "../ui.js"
import { placeOf } from "../api.js"
import { pageOf } from "../log.js"
import { count, moment, plural } from "../format.js"
import { may } from "../live.js"
import { Rows, download } from "./rows.js"
import { Search } from "./search.js"

const PAGE = 25
const FOLLOWED = 8 // partitions: each is asked when something comes

export function Messages(props) {
  if (may("consume", props.topic, null)) return html`<${Log} ...${props}/>`
  return html`<${Card}><${Empty}>This token may not look at the messages of all groups.<//><//>`
}

function Log({ topic, info, depth }) {
  const [partition, setPartition] = useState("all")
  const partitions = useMemo(
    () => (partition === "all" ? Array.from({ length: info.partitionCount }, (_, n) => n) : [Number(partition)]),
    [partition, info.partitionCount],
  )
  const [view, setView] = useState({ newest: true }) // where a page begins, and in which order it goes on
  const [open, setOpen] = useState(null)
  const [found, setFound] = useState(null)
  const [searching, setSearching] = useState(false)
  // The newest are followed as they come, as long as none is looked at.
  const [seen, setSeen] = useState(depth)
  const follows = view.newest && !view.from && open === null && partitions.length <= FOLLOWED
  useEffect(() => void (follows && depth !== undefined && setSeen(depth)), [depth, follows])
  const [shown, error, again] = useAsked(
    () => pageOf(topic, partitions, view, PAGE),
    [topic, partitions, view, seen],
  )
  const move = (next, chosen = null, note = null) => (setView(next), setOpen(chosen), setFound(note))
  const onward = () => move({ newest: view.newest, from: shown.to })
  const back = async () => {
    const there = await pageOf(topic, partitions, { newest: !view.newest, from: view.from ?? shown.from }, PAGE)
    move(there.more ? { newest: view.newest, from: there.to } : { newest: view.newest })
  }
  const [older, newer] = view.newest ? [onward, back] : [back, onward]
  const atStart = view.newest && !view.from
  const placed = info.partitionCount > 1
  const jump = (where, offset) => {
    setPartition(placed ? String(where) : "all")
    move({ newest: false, from: { [where]: offset } }, `${where}-${offset}`)
  }
  return html`<${Card} title="Messages" kind="messages" actions=${html`
    <${Button} aria-pressed=${searching} onClick=${() => setSearching(!searching)}>Search<//>`}>
    <${Finder} topic=${topic} info=${info} partition=${partition} newest=${view.newest} jump=${jump} searching=${searching}
      setPartition=${to => (setPartition(to), move({ newest: view.newest }))} setNewest=${newest => move({ newest })}
      since=${time => move({ newest: false, since: time }, null, `What was stored from ${moment(time)} on.`)}/>
    ${
      searching
        ? html`<${Search} topic=${topic} partitions=${partitions} newest=${view.newest} placed=${placed} stored=${shown?.stored ?? 0}/>`
        : html`
    ${found && html`<p class="found" role="status">${found}</p>`}
    <${Problem} error=${error}/>
    ${
      shown &&
      html`
      <div class="bar pager">
        <span class="dim">${told(shown, partitions)}${atStart && depth > seen && `; ${count(depth - seen)} newer`}</span>
        <span class="grow"></span>
        <${Button} onClick=${() => (setSeen(depth), atStart ? again() : move({ newest: true }))}>Newest<//>
        <${Button} onClick=${older} disabled=${view.newest ? !shown.more : !view.from && !view.since}>Older<//>
        <${Button} onClick=${newer} disabled=${view.newest ? !view.from : !shown.more}>Newer<//>
        <${Button} onClick=${() => attempt(null, () => download(topic, shown.rows))} disabled=${!shown.rows.length}>Download<//>
      </div>
      <${Rows} rows=${shown.rows} topic=${topic} open=${open} setOpen=${setOpen} placed=${placed} label="Messages"/>`
    }`
    }
  <//>`
}

function told({ rows, first, end, stored }, partitions) {
  if (!rows.length) return stored ? "There is nothing from there on." : "There are no messages."
  if (partitions.length > 1) return `${count(rows.length)} of ${plural(stored, "message")} in ${partitions.length} partitions`
  const offsets = rows.map(each => each.offset)
  return `Offsets ${count(Math.min(...offsets))} to ${count(Math.max(...offsets))} of ${count(first)} to ${count(end - 1)}`
}

function Finder({ topic, info, partition, setPartition, newest, setNewest, jump, since, searching }) {
  const [by, setBy] = useState("offset")
  const [error, setError] = useState(null)
  const find = async event => {
    event.preventDefault()
    const text = new FormData(event.target).get("where").trim()
    setError(null)
    try {
      if (by === "offset") {
        const [, where, offset] = /^(?:(\d{1,4})-)?(\d{1,15})$/.exec(text) ?? []
        if (offset === undefined) throw new Error("An offset is a number.")
        jump(Number(where ?? (partition === "all" ? 0 : partition)), Number(offset))
      } else if (by === "time") {
        const time = Date.parse(text)
        if (Number.isNaN(time)) throw new Error("That is no time.")
        since(time)
      } else jump(...(await placeOf(topic, info, text)))
    } catch (problem) {
      setError(problem)
    }
  }
  return html`<form class="finder" onSubmit=${find}>
    ${
      info.partitionCount > 1 &&
      html`<${Field} label="Partition"><select value=${partition} onChange=${event => setPartition(event.target.value)}>
      <option value="all">all</option>
      ${Array.from({ length: info.partitionCount }, (_, n) => html`<option value=${n} key=${n}>${n}</option>`)}</select><//>`
    }
    <${Field} label="Order"><select value=${newest ? "newest" : "oldest"} onChange=${event => setNewest(event.target.value === "newest")}>
      <option value="newest">newest first</option><option value="oldest">oldest first</option></select><//>
    ${
      !searching &&
      html`<${Field} label="Find by"><select value=${by} onChange=${event => setBy(event.target.value)}>
      <option value="offset">offset</option><option value="time">time</option><option value="id">id</option></select><//>
    <${Field} label=${{ offset: "Offset", time: "Stored at or after", id: "Message id" }[by]} wide>
      <input name="where" key=${by} required autocomplete="off" ...${by === "time" ? { type: "datetime-local", step: "1" } : { inputmode: by === "offset" ? "numeric" : undefined }}/><//>
    <button type="submit">Go</button>`
    }
    <${Problem} error=${error}/>
  </form>`
}
