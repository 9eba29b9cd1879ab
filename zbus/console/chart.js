// Lines over time, drawn by uPlot.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js"
import { clock } from "./format.js"

const HEIGHT = 160
const dark = matchMedia("(prefers-color-scheme: dark)")
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

function options(series, show, when, width, point) {
  const axis = {
    stroke: colour("--dim"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
    font: "12px system-ui",
  }
  return {
    width,
    height: HEIGHT,
    padding: [8, 28, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    hooks: { setCursor: [plot => point(plot.cursor.idx)] },
    scales: { y: { range: (_, low, high) => [0, Math.max(high || 0, 1) * 1.1] } },
    axes: [
      { ...axis, values: (_, ticks) => ticks.map(each => when(each * 1000)), space: 84, size: 26 },
      { ...axis, values: (_, ticks) => ticks.map(show), size: 52 },
    ],
    series: [
      {},
      ...series.map(each => ({
        label: each.label,
        stroke: colour(each.colour),
        fill: each.fill ? colour(each.colour) + "22" : undefined,
        width: 2,
        points: { show: false },
      })),
    ],
  }
}

/** `series` are {label, colour, fill}, `data` is [times in ms, values, …] over a time that is called
 * `over`; `when` says how a time is told. Series, `show` and `when` stay as they are at first. */
export function Chart({ title, series, data, show, over = "the last minutes", when = clock }) {
  const box = useRef()
  const plot = useRef()
  const [pointed, point] = useState(null) // at which moment, by its place in the data
  useEffect(() => {
    const make = () => {
      plot.current?.destroy()
      plot.current = new uPlot(options(series, show, when, box.current.clientWidth || 300, point), drawn(data), box.current)
    }
    make()
    const watch = new ResizeObserver(() =>
      plot.current.setSize({ width: box.current.clientWidth || 300, height: HEIGHT }),
    )
    watch.observe(box.current)
    dark.addEventListener("change", make)
    return () => {
      watch.disconnect()
      dark.removeEventListener("change", make)
      plot.current.destroy()
    }
  }, [])
  useEffect(() => plot.current?.setData(drawn(data)))
  const at = pointed !== null && pointed < data[0].length ? pointed : data[0].length - 1
  const last = series.map((each, n) => `${each.label} ${show(data[n + 1].at(-1))}`)
  return html`<figure class="chart">
    <figcaption><span>${title}</span>${pointed !== null && html`<time>${when(data[0][at])}</time>`}${series.map(
      (each, n) => html`<span class=${"key key" + each.colour} key=${each.label}>${each.label} <b>${show(data[n + 1][at])}</b></span>`,
    )}</figcaption>
    <div ref=${box} role="img" aria-label=${`${title} over ${over}; now ${last.join(", ")}`}></div>
  </figure>`
}

const drawn = ([times, ...values]) => [times.map(each => each / 1000), ...values]
