// A page that shows the messages of a topic as they come, and goes on when the broker was away.
//
//   zbus serve --set pages=examples/javascript    and open http://127.0.0.1:15555/_pages/page.html

import { Zbus } from "/_client/zbus.js"

const state = document.getElementById("state")
const news = document.getElementById("news")
const broker = new Zbus(location.origin, {
  onState: (now, error) => (state.textContent = now === "open" ? "connected" : error.message),
})

document.forms[0].onsubmit = async event => {
  event.preventDefault()
  const form = event.target
  const title = form.title.value
  form.reset()
  try {
    await broker.produce("News", { title }) // is sent again, and stored once, when the connection breaks
  } catch (error) {
    state.textContent = `"${title}" was not stored: ${error.message}`
  }
}

await broker.declare("News")
for await (const message of await broker.watch("News", "earliest")) {
  const item = document.createElement("li")
  item.textContent = message.json().title
  news.prepend(item)
}
