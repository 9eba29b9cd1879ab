// The JSON Schema of a topic: each version that is kept, and a form for the next one.

import { Button, Card, Empty, Field, FormDialog, Problem, html, useAsked, useDialog, useState } from "../ui.js"
import { ask, change } from "../api.js"
import { may } from "../live.js"

const RULES = ["backward", "forward", "full", "none"]

const pretty = text => JSON.stringify(JSON.parse(text), null, 2)

export function Schema({ topic, info, again }) {
  const newest = info.schemaVersion ?? 0
  const [chosen, choose] = useState(0) // 0: the newest, whichever that is by now
  const version = chosen || newest
  const [told, error] = useAsked(async () => newest > 0 && (await shown(topic, version)), [topic, version, newest])
  const [dialog, open] = useDialog()
  const form = close => html`<${SchemaForm} topic=${topic} info=${info} text=${told?.text} close=${close} again=${again}/>`
  const numbers = told ? Array.from({ length: newest - told.first + 1 }, (_, n) => newest - n) : []
  const label = newest > 0 ? "New version" : "Set a schema"
  return html`<${Card} title="Schema" actions=${may("declare", topic, null) && html`<${Button} onClick=${() => open(form)}>${label}<//>`}>
    <${Problem} error=${error}/>
    ${newest === 0 && html`<${Empty}>Bodies of any kind are taken.<//>`}
    ${
      told &&
      html`<div class="bar"><label>Version <select onChange=${event => choose(Number(event.target.value))}>${numbers.map(
        each => html`<option value=${each} key=${each} selected=${each === version}>${each}</option>`,
      )}</select></label><span class="dim">What a client puts has to fit version ${newest}.</span>
      <a href="/_asyncapi.json">AsyncAPI</a></div>
      <pre class="code" tabindex="0" role="region" aria-label=${`Version ${version} of the schema`}>${told.text}</pre>`
    }
    ${dialog}<//>`
}

async function shown(topic, version) {
  const reply = await ask("schema", { topic, version })
  return { first: Number(reply.headers.get("schema_first")), text: pretty(await reply.text()) }
}

function SchemaForm({ topic, info, text, close, again }) {
  const call = async ({ schema, schema_compatibility }) => {
    const body = schema.trim()
    await change("declare", { topic, schema: body ? "body" : "none", ...(body && { schema_compatibility }) }, body)
    again()
  }
  const rule = info.schemaCompatibility ?? RULES[0]
  return html`<${FormDialog} title=${`Schema of ${topic}`} submit="Set it" close=${close} call=${call} done="The schema is set.">
    <${Field} label="JSON Schema" hint="Empty: bodies of any kind are taken"><textarea name="schema" rows="14" spellcheck="false" defaultValue=${text ?? ""}></textarea><//>
    <${Field} label="A new version has to be compatible"><select name="schema_compatibility">${RULES.map(
      each => html`<option value=${each} key=${each} selected=${each === rule}>${each}</option>`,
    )}</select><//><//>`
}
