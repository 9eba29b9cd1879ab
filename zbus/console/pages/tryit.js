// Every command of the broker as a form, made of its own description; and the same as a line of curl.

import { Badge, Card, Empty, Field, Head, Problem, html, marked, useAsked, useRef, useState } from "../ui.js"
import { path, send } from "../api.js"
import { quoted } from "../format.js"
import { live, may } from "../live.js"
import { headersOf } from "./produce.js"

const SHOWN = 100_000
const WAIT_MS = 60_000
const FEW = 6 // parameters, which are all seen at once

async function commandsOf() {
  const { "x-commands": commands } = await path("/_openapi.json")
  return Object.entries(commands)
    .filter(([, { operation }]) => may(operation))
    .map(([name, { text }]) => [name, text])
    .sort((a, b) => (a[0] < b[0] ? -1 : 1))
}

export function TryIt({ at }) {
  const [, command = may("query") ? "query" : "version"] = at
  const [commands, error] = useAsked(commandsOf, [])
  const chosen = commands?.find(([name]) => name === command)
  const choose = event => (location.hash = `#/try/${event.target.value}`)
  return html`
    <${Head} title="Try it"/>
    <${Problem} error=${error}/>
    ${
      commands &&
      html`<${Card}><${Field} label="Command"><select value=${command} onChange=${choose}>
        ${commands.map(([name, text]) => html`<option value=${name} key=${name}>${name} – ${text.slice(0, 70)}</option>`)}</select><//>
      ${
        chosen
          ? html`<p class="dim">${marked(chosen[1])}</p><${Command} key=${command} name=${command}/>`
          : html`<${Empty}>This token may not do ${command}.<//>`
      }<//>`
    }
    <p class="dim">All of it as a document: <a href="/_openapi.json">OpenAPI</a>.</p>`
}

/** One command: where it goes, its parameters, and whether it has a body. */
async function described(name) {
  const { paths } = await path(`/_openapi.json?command=${encodeURIComponent(name)}`)
  const targets = Object.keys(paths)
  const target = targets.find(each => paths[each].post) ?? targets.at(-1)
  const methods = paths[target]
  const method = methods.post ? "post" : Object.keys(methods)[0]
  const { parameters = [], requestBody } = methods[method]
  return { target, method: method.toUpperCase(), parameters, body: !!requestBody }
}

function Command({ name }) {
  const [told, error] = useAsked(() => described(name), [name])
  if (error) return html`<${Problem} error=${error}/>`
  return told ? html`<${Form} name=${name} ...${told}/>` : html`<p class="empty">…</p>`
}

/** What is sent: [url, headers]. Empty is absent. */
function requestOf(target, parameters, values, extra) {
  const query = new URLSearchParams()
  const headers = headersOf(extra)
  let url = target
  for (const parameter of parameters) {
    const value = values[parameter.name] ?? (parameter.name === "cmd" ? (parameter.schema.enum?.[0] ?? "") : "")
    if (parameter.in === "path")
      url = value
        ? url.replace(`{${parameter.name}}`, encodeURIComponent(value))
        : url.replace(`/{${parameter.name}}`, "")
    else if (value === "") continue
    else if (parameter.in === "header") headers[parameter.name] = value
    else query.set(parameter.name, value)
  }
  const text = query.toString()
  return [(url || "/") + (text ? "?" + text : ""), headers]
}

function curlOf(method, url, headers, body) {
  const parts = ["curl"]
  if (live.rights?.tokens) parts.push("-H", quoted("token: …"))
  for (const [name, value] of Object.entries(headers)) parts.push("-H", quoted(`${name}: ${value}`))
  if (method === "POST") parts.push("--data-raw", quoted(body)) // which a body that begins with @ does not make a file
  return [...parts, quoted(location.origin + url)].join(" ")
}

function Form({ name, target, method, parameters, body: hasBody }) {
  const [values, setValues] = useState(() => (name === "consume" ? { timeout: "1000" } : {}))
  const [extra, setExtra] = useState("")
  const [body, setBody] = useState("")
  const [reply, setReply] = useState(null)
  const [error, setError] = useState(null)
  const end = useRef(null)
  const shown = parameters.filter(each => each.name !== "cmd")
  const first = shown.filter(each => each.in === "path" || each.required)
  const others = shown.filter(each => !first.includes(each))
  const fields = of =>
    html`<div class="fields">${of.map(
      each => html`<${Input} key=${each.name} of=${each} value=${values[each.name] ?? ""}
      set=${value => setValues(old => ({ ...old, [each.name]: value }))}/>`,
    )}</div>`
  let url = "",
    headers = {},
    wrong = null
  try {
    ;[url, headers] = requestOf(target, parameters, values, extra)
  } catch (problem) {
    wrong = problem
  }
  const curl = wrong ? "" : curlOf(method, url, headers, body)
  const submit = async event => {
    event.preventDefault()
    end.current?.abort()
    end.current = new AbortController()
    setError(null)
    setReply("busy")
    try {
      const options = {
        method,
        headers,
        signal: end.current.signal,
        timeoutMs: WAIT_MS,
        redirect: "manual",
        ...(method === "POST" && { body: new TextEncoder().encode(body) }),
      }
      setReply(await toldOf(await send(url, options), end.current))
    } catch (problem) {
      setReply(null)
      if (problem.name !== "AbortError") setError(problem)
    }
  }
  return html`<form onSubmit=${submit}>
    ${fields(first)}
    ${others.length <= FEW ? fields(others) : null}
    ${hasBody && html`<${Field} label="Body"><textarea rows="4" value=${body} onInput=${event => setBody(event.target.value)} spellcheck="false"></textarea><//>`}
    <details class="more"><summary>${others.length > FEW ? `${others.length} more parameters, and headers` : "More headers"}</summary>
      ${others.length > FEW && fields(others)}
      <${Field} label="Headers" hint="One a line, name: value"><textarea rows="2" value=${extra} onInput=${event => setExtra(event.target.value)} spellcheck="false"></textarea><//></details>
    <p class="label" id="curl-label">The same with curl</p><pre class="code curl" tabindex="0" role="region" aria-labelledby="curl-label">${curl}</pre>
    <${Problem} error=${wrong ?? error}/>
    <div class="bar"><button type="submit" class="main" disabled=${!!wrong}>Send</button>
      ${reply === "busy" && html`<button type="button" onClick=${() => end.current.abort()}>Stop</button>`}</div>
  </form>
  ${reply === "busy" ? html`<p class="dim" role="status">Waiting for the answer …</p>` : reply && html`<${Reply} reply=${reply}/>`}`
}

function Input({ of, value, set }) {
  const { schema, name, required, description = "" } = of
  const options = schema.enum ?? (schema.type === "boolean" ? ["true", "false"] : null)
  const hint = description.split("\n")[0]
  const needed = required && name !== "group" // without one the path is shorter
  return html`<${Field} label=${html`${name}${needed ? html` <span class="dim">needed</span>` : ""}`} hint=${marked(hint)}>
    ${
      options
        ? html`<select value=${value} onChange=${event => set(event.target.value)}><option value=""></option>${options.map(each => html`<option key=${each} value=${each}>${String(each)}</option>`)}</select>`
        : html`<input value=${value} onInput=${event => set(event.target.value)} required=${needed} inputmode=${schema.type === "integer" ? "numeric" : undefined} autocomplete="off" spellcheck="false"/>`
    }<//>`
}

/** As much of a reply as can be shown; the rest is not even loaded. */
async function toldOf(reply, end) {
  if (reply.type === "opaqueredirect")
    return { status: "30x", headers: [], text: "A redirect, which a page may not look at." }
  const headers = [...reply.headers].map(([name, value]) => `${name}: ${value}`)
  let text = ""
  const reader = reply.body?.pipeThrough(new TextDecoderStream()).getReader()
  while (reader && text.length < SHOWN) {
    const { value, done } = await reader.read()
    if (done) break
    text += value
  }
  if (text.length >= SHOWN) end.abort()
  if ((reply.headers.get("content-type") ?? "").includes("json"))
    try {
      text = JSON.stringify(JSON.parse(text), null, 2)
    } catch {
      // cut, or no JSON after all
    }
  return { status: `${reply.status} ${reply.statusText}`, headers, text: text.slice(0, SHOWN) }
}

const Reply = ({
  reply,
}) => html`<section aria-label="Reply" class="reply"><p role="status"><${Badge} kind=${/^2/.test(reply.status) ? "good" : "warn"}>${reply.status}<//></p>
  <pre class="code" tabindex="0" role="region" aria-label="Headers of the reply">${reply.headers.join("\n")}</pre>
  <pre class="code" tabindex="0" role="region" aria-label="Body of the reply">${reply.text}</pre></section>`
