// One group: where it is, what it holds, and what can be done with it.

import {
  Badge,
  Button,
  Card,
  ConfirmName,
  Empty,
  Field,
  FormDialog,
  Head,
  Problem,
  Tabs,
  Tile,
  Tiles,
  attempt,
  go,
  html,
  link,
  Said,
  useAsked,
  useDialog,
  yes,
} from "../ui.js"
import { change, document_ } from "../api.js"
import { Chart } from "../chart.js"
import { away, bare, count, moment, plural, rate, short, span } from "../format.js"
import { Past, drawnAs, usePast, useSeen, useSpan } from "../history.js"
import { may, ratesOfGroup, useLive } from "../live.js"
import { Delayed, Leased, Listed } from "./listed.js"
import { GroupForm } from "./declare.js"
import { Dead, useLetters } from "./dead.js"

export function Group({ topic, group, tab }) {
  const { doc, state } = useLive()
  const told = doc?.topics[topic]?.groups?.[group]
  // The document is asked for again when a reader has come or gone, the group was paused, or is read now.
  const [info, error, again] = useAsked(
    () => document_("query", { topic, consume_group: group }),
    [topic, group, state, told?.consumers, told?.paused, told?.unclaimed],
  )
  const moments = useSeen({ ready: told?.ready, leased: told?.leased, ...ratesOfGroup(topic, group) })
  const letters = useLetters(topic, group, info)
  const waiting = letters.rows?.filter(each => each.open).length
  const [dialog, open] = useDialog()
  const at = (...rest) => link("topics", topic, "groups", group, ...rest)
  const tabs = [
    ["", "Lag", at()],
    ["ready", "Ready", at("ready")],
    ["leases", "Leases", at("leases")],
    ["delayed", "Delayed", at("delayed")],
    ["dead", "Dead letters", at("dead")],
    ["settings", "Settings", at("settings")],
  ]
  const now =
    told ??
    (info && { ready: info.messageCount, leased: info.leasedCount, delayed: info.delayedCount, dead: info.deadCount })
  return html`
    <${Head} title=${group} path=${[
      ["Topics", "#/topics"],
      [topic, link("topics", topic)],
    ]} badges=${info && html`<${Badges} info=${info}/>`}
      actions=${info && html`<${Actions} topic=${topic} group=${group} info=${info} open=${open} again=${again}/>`}/>
    <${Problem} error=${error}/>
    ${
      info &&
      html`
      <${Tiles}>
        ${
          info.unclaimed
            ? html`<${Tile} label="Lag" value="–" note=${`nobody has read it yet; ${plural(now.ready, "message")} from there on`}/>`
            : html`<${Tile} label="Lag" value=${count(now.ready)} note="messages wait"/>`
        }
        <${Tile} label="Leased" value=${count(now.leased)} note=${info.ack ? `of ${count(info.window)} at once` : "no acknowledgements"}/>
        <${Tile} label="Delayed" value=${count(now.delayed)}/>
        ${
          waiting === undefined
            ? html`<${Tile} label="Dead" value=${count(now.dead)} note="ever"/>`
            : html`<${Tile} label="Dead letters" value=${count(waiting)} note=${`open, of ${count(now.dead)} ever`} kind=${waiting ? "low" : ""}/>`
        }
        <${Tile} label="Readers" value=${count(told?.consumers ?? info.consumerCount)} note=${told?.lastReadTime ? `read ${away(told.lastReadTime)}` : ""}/>
        ${info.skippedCount > 0 && html`<${Tile} label="Skipped" value=${count(info.skippedCount)} note="dropped before they were read" kind="low"/>`}
      <//>
      <${Tabs} tabs=${tabs} now=${tab} label="Parts of the group"/>
      ${tab === "" && html`<${Lag} topic=${topic} group=${group} told=${told} info=${info} moments=${moments}/>`}
      ${tab === "ready" && html`<${Listed} topic=${topic} group=${group} state="ready" title="Ready: what is handed out next" empty="Nothing waits."/>`}
      ${tab === "leases" && html`<${Leased} topic=${topic} group=${group} push=${info.push}/>`}
      ${tab === "delayed" && html`<${Delayed} topic=${topic} info=${{}} group=${group}/>`}
      ${tab === "dead" && html`<${Dead} topic=${topic} group=${group} info=${info} letters=${letters}/>`}
      ${tab === "settings" && html`<${Settings} topic=${topic} info=${info} open=${open} again=${again}/>`}
    `
    }
    ${dialog}`
}

const Badges = ({
  info,
}) => html`${info.paused && html`<${Badge} kind="warn">paused<//>`}${info.ack && html`<${Badge}>leases<//>`}
  ${info.exclusive && html`<${Badge}>one reader<//>`}${info.temporary && html`<${Badge}>temporary<//>`}
  ${info.unclaimed && html`<${Badge}>never read<//>`}${info.order && html`<${Badge}>order per key<//>`}
  ${info.push && html`<${Badge}>webhook<//>`}${info.filter && html`<${Badge}>filter ${info.filter}<//>`}`

function Actions({ topic, group, info, open, again }) {
  const at = { topic, consume_group: group }
  const hold = () =>
    attempt(
      info.paused ? "The group goes on." : "The group is paused.",
      async () => (await change(info.paused ? "resume" : "pause", at), again()),
    )
  const seek = close => html`<${Seek} at=${at} close=${close} again=${again}/>`
  const empty =
    close => html`<${ConfirmName} title="Purge the group" name=${group} submit="Purge" close=${close} done="The group is at the end of the log."
    text="The group forgets everything that it has not finished. Other groups and the messages themselves stay." call=${async () => (await change("empty", at), again())}/>`
  const remove =
    close => html`<${ConfirmName} title="Remove the group" name=${group} submit="Remove" close=${close} done="The group is gone."
    text="The group goes, and with it where it stands. The messages stay." call=${async () => (await change("remove", at), go("topics", topic, "groups"))}/>`
  return html`<a class="button" href=${link("compare", topic, group)}>Compare</a>${may("declare", topic, group) && html`<${Button} onClick=${hold}>${info.paused ? "Resume" : "Pause"}<//><${Button} onClick=${() => open(seek)}>Seek<//>`}
    ${may("empty", topic, group) && html`<${Button} onClick=${() => open(empty)}>Purge<//>`}
    ${may("remove", topic, group) && html`<${Button} kind="danger-quiet" onClick=${() => open(remove)}>Remove<//>`}`
}

function Seek({ at, close, again }) {
  const call = async ({ from, time, partition }) => {
    await change("seek", { ...at, from: time ? `time:${Date.parse(time)}` : from, partition })
    again()
  }
  return html`<${FormDialog} title=${`Move ${at.consume_group}`} submit="Move it" close=${close} call=${call} done="The group reads on from there.">
    <p>Leases that are open are dropped, and the group forgets what it had delayed and tried.</p>
    <${Field} label="To" hint="earliest, latest, or an offset"><input name="from" defaultValue="earliest" autocomplete="off"/><//>
    <div class="fields"><${Field} label="Or to a time" hint="If it is filled in, it counts"><input name="time" type="datetime-local" step="1"/><//>
      <${Field} label="Partition" hint="Empty: all"><input name="partition" type="number" min="0"/><//></div><//>`
}

function Lag({ topic, group, told, info, moments }) {
  const [span, choose] = useSpan()
  const past = usePast({ topic, group, span, seen: moments })
  const as = drawnAs(span)
  const [next] = useAsked(
    () => document_("peek", { topic, consume_group: group, count: 1 }),
    [topic, group, told?.ready, told?.leased],
  )
  return html`
    <${Past} span=${span} choose=${choose} note=${past.note}/>
    <div class="two">
      <${Card}><${Chart} ...${as} title="Lag" show=${short}
        series=${[
          { label: "waiting", colour: "--three", fill: true },
          { label: "leased", colour: "--one" },
        ]} data=${[past.t, past.ready, past.leased]}/><//>
      <${Card}><${Chart} ...${as} title="Messages a second" show=${rate}
        series=${[
          { label: "out", colour: "--two", fill: true },
          { label: "acked", colour: "--one" },
        ]} data=${[past.t, past.out, past.acked]}/><//>
    </div>
    <${Card} title="Where it is">
      <dl class="said">
        <div><dt>Next message</dt><dd>${next?.[0] ? html`offset <b>${count(next[0].offset)}</b> of partition ${next[0].partition}, stored ${away(next[0].timestamp)}` : "none waits"}</dd></div>
        <div><dt>Last read</dt><dd>${told?.lastReadTime ? away(told.lastReadTime) : "not since the broker started"}</dd></div>
        <div><dt>Readers</dt><dd>${info.consumerList?.length ? info.consumerList.map(each => html`<code class="chip" key=${each}>${bare(each)}</code> `) : "none"}</dd></div>
        ${info.push && html`<div><dt>Webhook</dt><dd>${webhook(info.push)}</dd></div>`}
      </dl><//>`
}

/** Where its messages are sent to, and how that goes. */
const webhook = push => html`
  <code class="chip">${push.url}</code> took ${count(push.delivered)}, did not take ${count(push.failed)}
  ${push.error ? html` — <b>${push.error}</b>${push.failingSince ? `, first ${away(push.failingSince)}` : ""}` : ""}`

/** The settings of a group in words. */
export const SAID = {
  ack: ["Leases its messages", yes],
  leaseMs: ["Lease", span],
  window: ["Leased at once, at most", count],
  filter: ["Filter on tags"],
  order: ["Order", () => "one after another, per key"],
  maxAttempts: ["Attempts, at most", count],
  backoffMs: ["Backoff", span],
  backoffMaxMs: ["Backoff, at most", span],
  deadLetter: ["Dead-letter topic"],
  onLoss: ["When a connection is lost, leases", () => "go back in front"],
  retain: ["Retention waits for it", yes],
  rate: ["Messages a second, at most", count],
  exclusive: ["One reader at a time", yes],
  temporary: ["Goes with its last reader", yes],
  unclaimed: ["Came with its topic, and was never read", yes],
  createdTime: ["Made", moment],
  lastUpdatedTime: ["Changed", moment],
}
const PUSHED = {
  url: ["Address"],
  signed: ["Signed", yes],
  concurrency: ["Requests at once", count],
  timeoutMs: ["Longest time of a request", span],
  delivered: ["Taken", count],
  failed: ["Not taken", count],
  error: ["What it said last"],
  failingSince: ["Fails since", moment],
}

function Settings({ topic, info, open, again }) {
  const edit = close =>
    html`<${GroupForm} topic=${topic} info=${info} close=${close} again=${again} done="The group is changed."/>`
  return html`<${Card} title="Settings" actions=${may("declare", topic, info.groupName) && html`<${Button} onClick=${() => open(edit)}>Change<//>`}>
    <${Said} of=${info} as=${SAID}/>
    ${info.push && html`<h3>Webhook</h3><${Said} of=${info.push} as=${PUSHED}/>`}<//>`
}
