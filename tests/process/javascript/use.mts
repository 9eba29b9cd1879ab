import { Zbus, Message, NotFound, events } from "zbus-client"
async function main() {
  const broker = new Zbus("http://x", { token: "t", retries: 3 })
  const { offset }: { offset: number } = await broker.produce("T", { a: 1 }, { delayMs: 5, key: "k" })
  for await (const message of broker.consume("T", "g", { retry: { maxAttempts: 3 } })) await message.nack({ delayMs: 10 })
  for await (const message of await broker.watch("T", "earliest")) { const m: Message = message; m.text.trim() }
  // @ts-expect-error
  await broker.produce("T", 1, { dealy: 5 })
  const s = await broker.serve("S", { plus: (a: number, b: number) => a + b, math: { minus: (a: number) => -a } })
  await s.close()
}
