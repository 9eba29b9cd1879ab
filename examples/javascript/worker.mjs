// A worker: takes orders, packs each, and says so in another topic. Start as many as you like.
//
//   node examples/javascript/worker.mjs http://127.0.0.1:15555       (Node 20: --experimental-websocket)
//
// An order on which the work fails is tried again after a pause, at most three times: then it is in "OrdersDead".

import { Zbus } from "../../zbus/javascript/zbus.js" // of a program of your own: "zbus-client"

const broker = new Zbus(process.argv[2])
await broker.declare("Orders")
await broker.declare("OrdersDead")
await broker.declare("Packed")

const retry = { maxAttempts: 3, backoffMs: 100, deadLetter: "OrdersDead" }
const orders = broker.consume("Orders", "packing", { retry })
process.on("SIGINT", () => orders.close()) // the loop ends, and what was not begun goes to others

async function pack(order) {
  if (order.pieces < 1) throw new Error(`there is nothing to pack in ${order.name}`)
  await broker.produce("Packed", { name: order.name }, { key: order.name })
}

console.log("working on Orders/packing")
for await (const message of orders) {
  try {
    await pack(message.json())
    await message.ack()
    console.log(`packed ${message.text}`)
  } catch (error) {
    console.log(`attempt ${message.retry + 1} failed: ${error.message}`)
    await message.nack()
  }
}
await broker.close()
