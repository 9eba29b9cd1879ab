// How numbers, sizes and times are told to people.

const GROUPED = new Intl.NumberFormat("en")
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 })
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]

export const count = n => (n == null ? "–" : GROUPED.format(n))

export const short = n => (n == null ? "–" : n < 10_000 ? count(n) : SHORT.format(n))

export function rate(n) {
  if (n == null) return "–"
  return n === 0 ? "0" : n < 10 ? n.toFixed(1) : short(Math.round(n))
}

export function bytes(n) {
  if (n == null) return "–"
  let unit = 0
  for (; n >= 1024 && unit < UNITS.length - 1; unit++) n /= 1024
  return `${unit && n < 100 ? n.toFixed(1) : Math.round(n)} ${UNITS[unit]}`
}

export function span(ms) {
  if (ms == null) return "–"
  if (ms < 1000) return `${Math.round(ms * 10) / 10} ms`
  const s = Math.round(ms / 1000)
  if (s < 120) return `${s} s`
  if (s < 5400) return `${Math.round(s / 60)} min`
  if (s < 36_000) return `${Math.round(s / 360) / 10} h`
  if (s < 172_800) return `${Math.round(s / 3600)} h`
  return `${Math.round(s / 86_400)} days`
}

/** A moment, as far as it is from `now`: "12 s ago", "in 3 min". */
export function away(ms, now = Date.now()) {
  if (!ms) return "never"
  const far = ms - now
  if (Math.abs(far) < 1000) return "now"
  return far < 0 ? `${span(-far)} ago` : `in ${span(far)}`
}

/** An address without the slash that the protocol writes before it. */
export const bare = address => address.replace(/^\//, "")

const two = n => String(n).padStart(2, "0")

/** Local time, in the form that sorts. */
export function moment(ms) {
  if (!ms) return "–"
  const d = new Date(ms)
  const day = `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`
  return `${day} ${clock(ms)}.${String(d.getMilliseconds()).padStart(3, "0")}`
}

const DAYS = ["Su", "Mo", "Tu", "We", "Th", "Fr", "Sa"]

/** Of the week, in local time. */
export const day = ms => DAYS[new Date(ms).getDay()]

export function clock(ms) {
  const d = new Date(ms)
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`
}

/** One word of a shell, whatever is in it. */
export function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`
