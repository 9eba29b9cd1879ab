// Durations and sizes as people write them: `7d`, `30s`, `10 MiB`. The command line takes the same.

const MS = { ms: 1, s: 1_000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 }
const BYTES = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 }

function parsed(text, units, form) {
  const [, number, unit] = /^(\d+(?:\.\d+)?)\s*([A-Za-z]*)$/.exec(text.trim()) ?? []
  const found = Object.keys(units).find(each => each.toLowerCase() === unit?.toLowerCase())
  const value = unit === "" ? Number(number) : number * units[found]
  if (!Number.isSafeInteger(value)) throw new Error(`“${text.trim()}” is not ${form}.`)
  return value
}

/** Of `30s` or, as it is, of milliseconds. */
export const milliseconds = text => parsed(text, MS, "a duration such as 500ms, 30s, 5m, 2h or 7d")

export const bytesIn = text => parsed(text, BYTES, "a size such as 64KiB, 10MiB or 2GiB")

function written(n, units) {
  if (n == null || n === "") return ""
  const fits = Object.keys(units).findLast(unit => n % units[unit] === 0)
  return n === 0 ? "0" : n / units[fits] + fits
}

/** Exactly, so that it can be edited: `written` in the largest unit of which it is a whole number. */
export const duration = ms => written(ms, { ...MS, min: Infinity, w: Infinity })
export const size = n => written(n, BYTES)
