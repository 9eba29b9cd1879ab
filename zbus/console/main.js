// The console: which page is shown, and what is around it.

import { html, render, useEffect, useErrorBoundary, useState } from "./vendor/preact-htm.js"
import { logOut } from "./api.js"
import { live, start, useLive, become } from "./live.js"
import { Notices, Problem, link, reveal } from "./ui.js"
import { Login } from "./pages/login.js"
import { Overview } from "./pages/overview.js"
import { Topics } from "./pages/topics.js"
import { Topic } from "./pages/topic.js"
import { Groups } from "./pages/groups.js"
import { Group } from "./pages/group.js"
import { Compare } from "./pages/compare.js"
import { Connections } from "./pages/connections.js"
import { Nodes } from "./pages/nodes.js"
import { Why } from "./pages/why.js"
import { TryIt } from "./pages/tryit.js"

const PAGES = [
  ["", "Overview", Overview],
  ["topics", "Topics", Topics],
  ["groups", "Groups", Groups],
  ["connections", "Connections", Connections],
  ["nodes", "Nodes", Nodes],
  ["why", "Why", Why],
  ["try", "Try it", TryIt],
]

function place() {
  const [path] = location.hash.replace(/^#\/?/, "").split("?")
  try {
    return path.split("/").filter(Boolean).map(decodeURIComponent)
  } catch {
    return []
  }
}

function usePlace() {
  const [at, setAt] = useState(place)
  useEffect(() => {
    const moved = () => {
      setAt(place())
      scrollTo(0, 0)
    }
    addEventListener("hashchange", moved)
    return () => removeEventListener("hashchange", moved)
  }, [])
  return at
}

function Page({ at }) {
  const [error, again] = useErrorBoundary(problem => console.error(problem))
  const key = at.join("\n")
  useEffect(() => again(), [key])
  if (error) return html`<${Problem} error=${{ message: `This page has a mistake: ${error.message}` }}/>`
  const [first = "", topic, part, group] = at
  if (first === "topics" && topic !== undefined)
    return part === "groups" && group !== undefined
      ? html`<${Group} key=${topic + "\n" + group} topic=${topic} group=${group} tab=${at[4] ?? ""}/>`
      : html`<${Topic} key=${topic} name=${topic} tab=${part ?? ""}/>`
  if (first === "compare" && part !== undefined) return html`<${Compare} key=${key} at=${at}/>`
  const found = PAGES.find(([name]) => name === first) ?? PAGES[0]
  return html`<${found[2]} key=${found[0]} at=${at}/>`
}

const STATES = {
  connecting: ["wait", "Connecting"],
  live: ["good", "Live"],
  away: ["bad", "Not connected"],
  login: ["wait", "Not logged in"],
}

function App() {
  const { state, rights, doc } = useLive()
  const at = usePlace()
  const [kind, word] = STATES[state]
  const [first = ""] = at
  useEffect(() => reveal(document.querySelector(".main-nav [aria-current]")), [first])
  return html`
    <a class="skip" href="#main" onClick=${event => (event.preventDefault(), document.getElementById("main").focus())}>Skip to the content</a>
    <header class="top">
      <a class="brand" href="#/"><img src="icon.svg" alt="" width="24" height="24"/><span>zbus</span></a>
      ${
        state !== "login" &&
        html`<nav class="main-nav" aria-label="Pages">${PAGES.filter(([name]) => name !== "nodes" || doc?.cluster).map(
          ([name, text]) => html`<a
          href=${"#/" + name} key=${name} aria-current=${name === first ? "page" : undefined}>${text}</a>`,
        )}</nav>`
      }
      <div class="who">
        <span class=${"state " + kind}>${word}</span>
        ${doc?.serverVersion && html`<span class="dim server">${doc.serverAddress?.address ?? doc.serverAddress} · zbus ${doc.serverVersion}</span>`}
        ${rights?.tokens && state !== "login" && html`<${User} rights=${rights}/>`}
      </div>
    </header>
    ${state === "away" && html`<p class="banner" role="alert">The broker cannot be reached. What you see is as it was; this page goes on by itself when the broker is back.</p>`}
    ${doc?.refusing && html`<p class="banner" role="alert">The broker takes no messages now: ${doc.refusing}</p>`}
    <main id="main" tabindex="-1" data-place=${link(...at)}>
      ${state === "login" ? html`<${Login}/>` : rights ? html`<${Page} at=${at}/>` : html`<p class="empty">Connecting …</p>`}
    </main>
    <${Notices}/>`
}

function User({ rights }) {
  const leave = async () => {
    await logOut().catch(() => {})
    live.left = true
    become("login")
  }
  const all = rights.operations.includes("admin") ? "everything" : rights.operations.join(", ")
  const topics = Object.keys(rights.topics).join(", ") || "no topic"
  return html`<details class="user"><summary>${rights.name || "nobody"}</summary><div class="user-card">
    <p><b>${rights.name || "Nobody"}</b> may do ${all}, on ${topics}.</p>
    ${rights.expires && html`<p class="dim">Until ${new Date(rights.expires).toLocaleString()}.</p>`}
    <button type="button" onClick=${leave}>Log out</button></div></details>`
}

render(html`<${App}/>`, document.getElementById("app"))
start()
