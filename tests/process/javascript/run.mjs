// node run.mjs <module> <scenario> <url> [count]: its result as the last line.
const [module, scenario, url, ...more] = process.argv.slice(2)
const scenarios = await import("./scenarios.mjs")
const result = await scenarios[scenario](await import(module), url, ...more.map(Number), text => console.log(text))
console.log(JSON.stringify(result))
