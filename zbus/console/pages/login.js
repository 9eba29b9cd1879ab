// Whoever has no token, or one whose time is over, shows one here.

import { Problem, html, useState } from "../ui.js"
import { Refused, logIn, path } from "../api.js"
import { live, start } from "../live.js"

export function Login() {
  const [error, setError] = useState(null)
  const [busy, setBusy] = useState(false)
  const over = live.rights && !live.left
  const submit = async event => {
    event.preventDefault()
    setBusy(true)
    setError(null)
    try {
      await logIn(new FormData(event.target).get("token"))
      await path("/_rights")
      live.left = false
      start()
    } catch (problem) {
      const unknown = problem instanceof Refused && problem.status === 403
      setError(unknown ? { message: "This broker does not know that token, or its time is over." } : problem)
    }
    setBusy(false)
  }
  return html`<form class="login card" onSubmit=${submit}>
    <img src="icon.svg" alt="" width="48" height="48"/>
    <h1>Log in</h1>
    ${
      over
        ? html`<p role="alert">Your token is not taken any more: its time is over, or it was replaced. Log in again to go on.</p>`
        : html`<p class="dim">This broker wants to know who you are.</p>`
    }
    <label class="field"><span>Token</span>
      <input type="password" name="token" autocomplete="current-password" required/></label>
    <${Problem} error=${error}/>
    <button type="submit" class="main" disabled=${busy}>Log in</button>
  </form>`
}
