// Takes so many messages of each address, and prints what came: status, body, and header lines.
const [count, ...addresses] = process.argv.slice(2)
const encoded = bytes => '=' + Buffer.from(bytes).toString('base64')
for (const address of addresses) {
  const [url, ...words] = address.split(' ')
  const headers = []
  for (let at = 0; at < words.length; at += 2) headers.push([words[at], words[at + 1]])
  for (let number = 0; number < Number(count); number++) {
    const reply = await fetch(url, {headers})
    const parts = [reply.status, encoded(await reply.arrayBuffer())]
    reply.headers.forEach((value, name) => parts.push(name, encoded(Buffer.from(value, 'latin1'))))
    console.log(parts.join(' '))
  }
}
