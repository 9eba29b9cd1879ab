// A message by hand.

import { Field, FormDialog, html, notify } from "../ui.js"
import { address, refusal, send } from "../api.js"
import { moment } from "../format.js"
import { milliseconds } from "../units.js"

const TYPES = ["", "text/plain", "application/json", "application/octet-stream"]

/** Lines of `name: value`. */
export function headersOf(text) {
  const found = {}
  for (const line of (text ?? "").split("\n")) {
    const [, name, value] = /^([^:\s]+):\s*(.*?)\s*$/.exec(line) ?? []
    if (name) found[name] = value
    else if (line.trim()) throw new Error(`A header is a name, a colon and a value, not “${line.trim()}”.`)
  }
  return found
}

const bytes = text => new TextEncoder().encode(text)

/** A container with one message: what stands in it is stored, and nothing that the browser adds. */
function contained(fields, body) {
  const lines = Object.entries({ ...fields, "content-length": body.length }).map(
    ([name, value]) => `${name}: ${value}\r\n`,
  )
  return new Blob([bytes(`POST / HTTP/1.1\r\n${lines.join("")}\r\n`), body])
}

export function Produce({ topic, info, close }) {
  const call = async ({ body, type, headers, id, ...params }) => {
    for (const name of ["delay", "ttl"]) if (params[name]) params[name] = milliseconds(params[name])
    const fields = { ...headersOf(headers), ...(type && { "content-type": type }) }
    const alone = info.rpc || params.cron // neither a call nor a schedule comes in a container
    const url = address("produce", { topic, ...params, id: alone ? id : "" }) // of the request, else of the message
    const reply = alone
      ? await send(url, { method: "POST", headers: fields, body: bytes(body) })
      : await send(url, {
          method: "POST",
          headers: { "content-type": "application/vnd.zbus.messages" },
          body: contained(id ? { ...fields, id } : fields, bytes(body)),
        })
    if (!reply.ok) throw await refusal(reply)
    const where = reply.headers.get("offset")
    const schedule = reply.headers.get("schedule")
    if (schedule) notify(`Stored in ${schedule}; it comes first at ${moment(Number(reply.headers.get("due"))).slice(0, 19)}.`)
    else notify(where == null ? `The service answered ${reply.status}.` : `Stored at offset ${where}.`)
  }
  return html`<${FormDialog} title=${`Produce to ${topic}`} submit="Put the message" close=${close} call=${call}>
    <${Field} label="Body"><textarea name="body" rows="6" spellcheck="false"></textarea><//>
    <div class="fields">
      <${Field} label="Content type"><select name="type">${TYPES.map(each => html`<option value=${each} key=${each}>${each || "none"}</option>`)}</select><//>
      <${Field} label="Tag"><input name="tag" autocomplete="off"/><//>
      <${Field} label="Key"><input name="key" autocomplete="off"/><//>
      <${Field} label="Delay" hint="30s, 2h, 7d"><input name="delay" autocomplete="off"/><//>
      ${info.partitionCount > 1 && html`<${Field} label="Partition"><input name="partition" type="number" min="0" max=${info.partitionCount - 1} placeholder="by key"/><//>`}
    </div>
    <details class="more"><summary>Id, expiry, schedule</summary><div class="fields">
      <${Field} label="Id" hint="Made if it is empty"><input name="id" autocomplete="off" spellcheck="false"/><//>
      <${Field} label="Expires after" hint="30s, 2h, 7d"><input name="ttl" autocomplete="off"/><//>
      <${Field} label="Schedule" hint="A cron expression: 0 9 * * 1-5"><input name="cron" autocomplete="off" spellcheck="false"/><//>
      <${Field} label="Time zone of the schedule"><input name="cron_zone" placeholder="UTC" autocomplete="off" spellcheck="false"/><//>
    </div></details>
    <${Field} label="Headers" hint="One a line, name: value"><textarea name="headers" rows="2" spellcheck="false"></textarea><//>
  <//>`
}
