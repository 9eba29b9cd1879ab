-- wrk script: pulls of up to 16 messages over topics in turn, and an acknowledgement of each answer
-- before the next pull.
--
--   wrk -t2 -c32 -d4s -s tests/bench/pairs.lua http://127.0.0.1:15555 -- A,B C,D
--
-- Each thread has the topics of one word. An acknowledgement may go over another connection.

local threads = 0

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

local pulls, pulled, at = {}, {}, 0

local function get(target)
  return "GET /" .. target .. " HTTP/1.1\r\nhost: localhost\r\n\r\n"
end

function init(args)
  for topic in args[number]:gmatch("[^,]+") do pulls[#pulls + 1] = get(topic .. "?cmd=consume&batch=16") end
end

function request()
  local ack = table.remove(pulled)
  if ack then return ack end
  at = at % #pulls + 1
  return pulls[at]
end

function response(status, headers, body)
  local first, topic = body:match('"offset":(%d+)'), headers["topic"]
  if first and topic then
    local last = first + (headers["count"] or 1) - 1
    pulled[#pulled + 1] = get(("%s?cmd=ack&offset=%s-%d"):format(topic, first, last))
  end
end
