// One topic: its messages, groups, delayed messages and settings, and what can be done with it.

import {
  Badge,
  Button,
  Card,
  ConfirmName,
  Empty,
  Head,
  Problem,
  Said,
  Table,
  Tabs,
  Tile,
  Tiles,
  go,
  html,
  link,
  useAsked,
  useDialog,
  yes,
} from "../ui.js"
import { change, document_ } from "../api.js"
import { Chart } from "../chart.js"
import { bytes, count, moment, rate, short, span } from "../format.js"
import { Charts, useSeen } from "../history.js"
import { backlogOf, may, ratesOf, useLive } from "../live.js"
import { COLUMNS, rowsOf } from "./groups.js"
import { Messages } from "./messages.js"
import { Delayed } from "./listed.js"
import { Produce } from "./produce.js"
import { Schema } from "./schema.js"
import { GroupForm, TopicForm } from "./declare.js"

/** As far as somebody needs it who may put messages, and nothing else. */
const UNSEEN = { partitionCount: 1, consumeGroupList: [] }

export function Topic({ name, tab }) {
  const { doc, state } = useLive()
  const told = doc?.topics[name]
  const seen = may("query", name)
  const [asked, error, again] = useAsked(() => seen && document_("query", { topic: name }), [name, state, seen])
  const info = seen ? asked : UNSEEN
  const [dialog, open] = useDialog()
  const now = ratesOf(name)
  const backlog = told ? backlogOf(told) : 0
  const moments = useSeen({ in: now.in, out: now.out, backlog })
  const schedules = `cron.${name}`
  const tabs = [
    ["", "Messages", link("topics", name)],
    ["groups", "Groups", link("topics", name, "groups")],
    ["charts", "Charts", link("topics", name, "charts")],
    ["delayed", "Delayed", link("topics", name, "delayed")],
    ["settings", "Settings", link("topics", name, "settings")],
  ]
  return html`
    <${Head} title=${name} path=${[["Topics", "#/topics"]]} badges=${info && html`<${Badges} info=${info}/>`}
      more=${doc?.topics[schedules] && html`<a href=${link("topics", schedules, "delayed")}>Schedules</a>`}
      actions=${info && html`<${Actions} name=${name} info=${info} open=${open} again=${again}/>`}/>
    <${Problem} error=${error}/>
    ${!seen && html`<${Card}><${Empty}>This token may not see what a topic is like: that takes the operation <code>query</code>.<//><//>`}
    ${
      asked &&
      html`
      <${Tiles}>
        <${Tile} label="Stored" value=${count(told?.depth ?? info.messageDepth)} note=${told?.inCount > told?.depth ? `of ${count(told.inCount)} ever put` : "messages"}/>
        <${Tile} label="In" value=${rate(now.in)} note="a second"/>
        <${Tile} label="Out" value=${rate(now.out)} note="a second, all groups"/>
        <${Tile} label="Backlog" value=${short(backlog)} note="of the slowest group"/>
        <${Tile} label="Readers" value=${count(told?.consumerCount ?? info.consumerCount)}/>
      <//>
      <${Tabs} tabs=${tabs} now=${tab} label="Parts of the topic"/>
      ${tab === "" && html`<${Messages} topic=${name} info=${info} depth=${told?.inCount}/>`}
      ${tab === "groups" && html`<${GroupList} name=${name} told=${told} info=${info} open=${open}/>`}
      ${tab === "charts" && html`<${Charts} topic=${name} seen=${moments} more=${more}/>`}
      ${tab === "delayed" && html`<${Delayed} topic=${name} info=${info}/>`}
      ${tab === "settings" && html`<${Settings} name=${name} info=${info} open=${open} again=${again}/>`}
    `
    }
    ${dialog}`
}

const Badges = ({ info }) => html`
  ${info.durability && html`<${Badge}>${info.durability}<//>`}${info.partitionCount > 1 && html`<${Badge}>${info.partitionCount} partitions<//>`}
  ${info.rpc && html`<${Badge}>services<//>`}${info.paused && html`<${Badge} kind="warn">paused<//>`}
  ${info.temporary && html`<${Badge}>temporary<//>`}`

function Actions({ name, info, open, again }) {
  const produce = close => html`<${Produce} topic=${name} info=${info} close=${close}/>`
  const empty =
    close => html`<${ConfirmName} title="Purge the topic" name=${name} submit="Purge" close=${close} done="The topic is empty."
    text="Every message of this topic goes, in all groups. They cannot be brought back." call=${async () => (await change("empty", { topic: name }), again())}/>`
  const remove =
    close => html`<${ConfirmName} title="Remove the topic" name=${name} submit="Remove" close=${close} done="The topic is gone."
    text="The topic goes, with its groups and messages. They cannot be brought back." call=${async () => (await change("remove", { topic: name }), go("topics"))}/>`
  return html`
    ${may("produce", name) && html`<${Button} kind="main" onClick=${() => open(produce)}>Produce<//>`}
    ${may("empty", name, null) && html`<${Button} onClick=${() => open(empty)}>Purge<//>`}
    ${may("remove", name, null) && html`<${Button} kind="danger-quiet" onClick=${() => open(remove)}>Remove<//>`}`
}

const more = (past, as) => html`
  ${past.bytes && html`<${Card}><${Chart} ...${as} title="Bytes a second" show=${bytes} series=${[{ label: "in", colour: "--one", fill: true }]} data=${[past.t, past.bytes]}/><//>`}
  ${past.acked && html`<${Card}><${Chart} ...${as} title="Finished a second" show=${rate} series=${[{ label: "acked", colour: "--two", fill: true }]} data=${[past.t, past.acked]}/><//>`}`

function GroupList({ name, told, info, open }) {
  const rows = told
    ? rowsOf(name, told)
    : info.consumeGroupList.map(each => ({
        id: each.groupName,
        topic: name,
        group: each.groupName,
        ready: each.messageCount,
        leased: each.leasedCount,
        delayed: each.delayedCount,
        dead: each.deadCount,
        consumers: each.consumerCount,
        unclaimed: each.unclaimed,
      }))
  const add = close => html`<${GroupForm} topic=${name} close=${close} done="The group is there."/>`
  return html`<${Card} title="Groups" actions=${may("declare", name) && html`<${Button} onClick=${() => open(add)}>New group<//>`}>
    <${Table} columns=${COLUMNS.filter(each => each.key !== "topic")} rows=${rows} label="Groups" empty="This topic has no groups."/><//>`
}

const SAID = {
  durability: ["Durability"],
  partitionCount: ["Partitions", count],
  retentionMs: ["Keeps messages for", span],
  retentionBytes: ["Keeps, of each partition", bytes],
  retentionCount: ["Keeps, messages of each partition", count],
  retentionDone: ["Forgets what all groups have finished", yes],
  compact: ["Keeps the newest message of each key", yes],
  dedupeMs: ["Remembers ids for", span],
  dedupeLive: ["An id is taken while its message lives", yes],
  settledMs: ["Knows what became of messages for", span],
  rpc: ["A topic of services", yes],
  ack: ["Groups lease their messages", yes],
  exclusive: ["Groups have one reader", yes],
  temporary: ["Groups go with their last reader", yes],
  paused: ["Deliveries are held back", yes],
  senderHeaders: ["Messages tell how they came", yes],
  schemaVersion: ["Version of the schema", count],
  schemaCompatibility: ["A new version has to be compatible"],
  createdTime: ["Made", moment],
  lastUpdatedTime: ["Changed", moment],
}

function Settings({ name, info, open, again }) {
  const edit = close => html`<${TopicForm} topic=${name} info=${info} close=${close} again=${again}/>`
  return html`<${Card} title="Settings" actions=${may("declare", name, null) && html`<${Button} onClick=${() => open(edit)}>Change<//>`}>
    <${Said} of=${info} as=${SAID}/><//>
    <${Schema} topic=${name} info=${info} again=${again}/>`
}
