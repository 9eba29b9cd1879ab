// Why a message is, or is not, with the consumers of a group.

import { Card, Field, Head, Problem, html, link, useAsked, useEffect, useState } from "../ui.js"
import { document_, placeOf } from "../api.js"
import { away, moment } from "../format.js"
import { live } from "../live.js"

const NAMES_SHOWN = 500

const SAID = {
  state: "State",
  offset: "Offset",
  partition: "Partition",
  id: "Id",
  tag: "Tag",
  key: "Key",
  attempts: "Attempts",
  holder: "Holder",
  before: "Messages before it",
  behind: "Waits for offset",
}
const TIMES = { timestamp: "Stored", until: "Until", expires: "Expires", ended: "Ended" }

export function Why({ at }) {
  const [, topic = "", partition = "", offset = "", group = ""] = at
  const [asked, setAsked] = useState(null)
  const [form, setForm] = useState({ topic, group, partition: partition || "0", where: offset })
  useEffect(() => {
    if (topic)
      setForm({
        topic,
        group: group || Object.keys(live.doc?.topics[topic]?.groups ?? {})[0] || "",
        partition: partition || "0",
        where: offset,
      })
  }, [topic, group, partition, offset])
  const [told, error, , loading] = useAsked(async () => asked && answer(asked), [asked])
  const set = name => event => setForm(old => ({ ...old, [name]: event.target.value }))
  const submit = event => (event.preventDefault(), setAsked({ ...form }))
  const names = Object.keys(live.doc?.topics ?? {}).slice(0, NAMES_SHOWN)
  const groups = Object.keys(live.doc?.topics[form.topic]?.groups ?? {}).slice(0, NAMES_SHOWN)
  return html`
    <${Head} title="Why"/>
    <${Card}><p>Why is a message not with the consumers of a group, or what became of it?</p>
      <form onSubmit=${submit}><div class="fields">
        <${Field} label="Topic"><input value=${form.topic} onInput=${set("topic")} list="topics" required autocomplete="off" spellcheck="false"/><//>
        <${Field} label="Group"><input value=${form.group} onInput=${set("group")} list="groups" placeholder="named like the topic" autocomplete="off" spellcheck="false"/><//>
        <${Field} label="Offset or id"><input value=${form.where} onInput=${set("where")} required autocomplete="off" spellcheck="false"/><//>
        <${Field} label="Partition"><input value=${form.partition} onInput=${set("partition")} type="number" min="0"/><//></div>
        <datalist id="topics">${names.map(each => html`<option value=${each} key=${each}/>`)}</datalist>
        <datalist id="groups">${groups.map(each => html`<option value=${each} key=${each}/>`)}</datalist>
        <button type="submit" class="main" disabled=${loading && !!asked}>Why?</button></form><//>
    <${Problem} error=${error}/>
    ${
      told &&
      html`<${Card}><p class="sentence" role="status">${told.text}</p><dl class="said">
      ${Object.entries(SAID).map(([key, label]) => told[key] !== undefined && html`<div key=${key}><dt>${label}</dt><dd><code>${String(told[key])}</code></dd></div>`)}
      ${Object.entries(TIMES).map(([key, label]) => told[key] !== undefined && html`<div key=${key}><dt>${label}</dt><dd>${moment(told[key])}, ${away(told[key])}</dd></div>`)}</dl>
      <p><a href=${link("topics", told.topic)}>The topic</a> · <a href=${link("topics", told.topic, "groups", told.consume_group)}>the group</a></p><//>`
    }`
}

async function answer({ topic, group, partition, where }) {
  const place = { topic, consume_group: group }
  if (/^\d+$/.test(where.trim())) return document_("why", { ...place, partition, offset: where.trim() })
  const info = await document_("query", { topic })
  const found = await placeOf(topic, info, where.trim())
  return document_("why", { ...place, partition: found[0], offset: found[1] })
}
