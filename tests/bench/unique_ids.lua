-- wrk script: every request puts a message with an id of its own.
--
--   wrk -t2 -c32 -d10s -s tests/bench/unique_ids.lua http://127.0.0.1:15555 -- MyTopic
--
-- Repeated identical heads flatter a server that remembers them; these never repeat.

local threads = 0

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

function init(args)
  local topic = args[1] or "MyTopic"
  -- Host must be there and in front: everything after `id: ` is new for each request.
  head = "GET /" .. topic .. "?cmd=produce HTTP/1.1\r\nhost: "
    .. wrk.host .. ":" .. wrk.port .. "\r\nid: "
    .. string.format("%x-%d-", os.time(), number)
  counter = 0
end

function request()
  counter = counter + 1
  return head .. counter .. "\r\n\r\n"
end
