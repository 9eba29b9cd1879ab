-- wrk script: requests from templates with slots (tests/bench/templates.py writes the file).
--
--   wrk -t32 -c32 -d10s -s tests/bench/templates.lua http://127.0.0.1:15555 -- FILE
--
-- Each thread is a client with templates of its own, which it sends in turn; if there are more
-- threads than clients, the clients come again.

local threads = 0

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

local random, format = math.random, string.format

local function hex(words)
  local parts = {}
  for at = 1, words do parts[at] = format("%08x", random(0, 0x7fffffff)) end
  return table.concat(parts)
end

local counter = 0

local slots = {
  n = function() return tostring(counter) end,
  kind = function() return "kind" .. counter % 20 end,
  user = function() return format("user-%05d", random(0, 99999)) end,
  delay = function() return tostring(random(60000, 899999)) end,
  span = function() return hex(2) end,
  id = function() return hex(2) end,
  trace = function() return hex(4) end,
  body = function() return string.rep("x", random(1, 200)) .. "\n--end--" end,
  length = function() return "" end, -- it is known last
}

local function parsed(text)
  local parts, fills, length, at = {}, {}, nil, 1
  while true do
    local first, last, name = text:find("{(%w+)}", at)
    if not first then break end
    parts[#parts + 1] = text:sub(at, first - 1)
    parts[#parts + 1] = ""
    if name == "length" then length = #parts end
    fills[#fills + 1] = {#parts, assert(slots[name], name)}
    at = last + 1
  end
  parts[#parts + 1] = text:sub(at)
  return {parts = parts, fills = fills, length = length}
end

local templates = {}

function init(args)
  local file = assert(io.open(args[1], "rb"))
  local clients = {}
  for client in file:read("*a"):gmatch("[^\30]+") do clients[#clients + 1] = client end
  file:close()
  for text in clients[(number - 1) % #clients + 1]:gmatch("[^\31]+") do
    templates[#templates + 1] = parsed(text)
  end
  math.randomseed(os.time() * 64 + number)
end

function request()
  counter = counter + 1
  local template = templates[counter % #templates + 1]
  local parts = template.parts
  for _, fill in ipairs(template.fills) do parts[fill[1]] = fill[2]() end
  local text = table.concat(parts)
  if not template.length then return text end
  local _, blank = text:find("\r\n\r\n", 1, true)
  parts[template.length] = tostring(#text - blank)
  return table.concat(parts)
end
