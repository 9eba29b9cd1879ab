// Each figure is a chart: uPlot draws the JSON in it.

const HEIGHT = 240
const COLOURS = ["#2f6fdd", "#e0852b", "#2f9e6b", "#c4465a", "#8a63c9", "#159ca8", "#a07a2c", "#7c8794"]
const dark = matchMedia("(prefers-color-scheme: dark)")
const number = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 })
const show = value => (value == null ? "" : number.format(value))

/** A moment in UTC, as exactly as times that are so many seconds apart need it. */
function moment(at_s, apart_s) {
  const text = new Date(at_s * 1000).toISOString()
  if (apart_s >= 86400 || text.slice(11, 19) === "00:00:00") return text.slice(0, 10)
  return text.slice(11, apart_s < 60 ? 19 : 16)
}

/** Of bars each series stands upon those behind it. */
function stacked(values) {
  const sums = values.at(-1).map(() => 0)
  return values.toReversed().map(each => each.map((value, n) => (sums[n] += value))).toReversed()
}

function options({ bars, names, step_s }, times, values) {
  const style = getComputedStyle(document.documentElement)
  const axis = {
    stroke: style.getPropertyValue("--soft"),
    grid: { stroke: style.getPropertyValue("--line"), width: 1 },
    ticks: { show: false },
    font: "12px system-ui",
  }
  return {
    width: 300,
    height: HEIGHT,
    tzDate: at => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    cursor: { y: false, drag: { x: false } },
    scales: {
      x: { range: [times[0] - step_s / 2, times.at(-1) + step_s / 2] },
      y: { range: (_, low, high) => [0, Math.max(high || 0, 1) * 1.1] },
    },
    axes: [
      { ...axis, space: 84, values: (_, ticks, _n, _space, apart_s) => ticks.map(at_s => moment(at_s, apart_s)) },
      { ...axis, size: 60, values: (_, ticks) => ticks.map(show) },
    ],
    series: [
      { label: "UTC", value: (_, at_s) => (at_s == null ? "" : `${moment(at_s, 86400)} ${moment(at_s, step_s)}`) },
      ...names.map((label, n) => ({
        label,
        stroke: COLOURS[n % COLOURS.length],
        width: bars ? 0 : 2,
        fill: bars ? COLOURS[n % COLOURS.length] : undefined,
        paths: bars ? uPlot.paths.bars({ size: [0.9, 100] }) : undefined,
        points: { show: !bars },
        spanGaps: true,
        value: (_, _shown, n, at) => (at == null ? "" : show(values[n - 1][at])),
      })),
    ],
  }
}

for (const figure of document.querySelectorAll("figure")) {
  const chart = JSON.parse(figure.querySelector("script").textContent)
  const box = figure.querySelector("div")
  const times = chart.times_s
  let plot
  const fit = () => plot.setSize({ width: box.clientWidth || 300, height: HEIGHT })
  const draw = () => {
    plot?.destroy()
    const data = [times, ...(chart.bars ? stacked(chart.values) : chart.values)]
    const legend = { mount: (_, table) => figure.append(table) }
    plot = new uPlot({ ...options(chart, times, chart.values), legend }, data, box)
    fit()
  }
  draw()
  new ResizeObserver(fit).observe(box)
  dark.addEventListener("change", draw)
}
