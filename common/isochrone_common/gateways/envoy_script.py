"""The Lua script that Envoy runs before each try of a request, once the member is chosen.

It gives the request the path, the key and the model of the member, which are metadata of its endpoint. All tries of a
request share its headers, so each try replaces those of the earlier one; each has the original body. Only
the `model` of the outermost object is replaced: the script looks for it without parsing the values that it passes.
"""

MEMBER_HEADER = "x-isochrone-member-"
"""The beginning of the headers in which the script receives the metadata: `base`, `variable`, `key` and `model`."""

PATH_HEADER = "x-isochrone-path"
"""The header with the path as the application sent it, which begins with `/v1/`."""

SCRIPT = """\
local function end_of_string(text, at)
  while true do
    local to = text:find('"', at, true)
    if not to then return nil end
    local before = to - 1
    while text:byte(before) == 92 do before = before - 1 end
    if (to - before) % 2 == 1 then return to end
    at = to + 1
  end
end

local function with_model(text, model)
  local depth, at = 0, 1
  while true do
    local from = text:find('["{}%[%]]', at)
    if not from then return text end
    local mark = text:sub(from, from)
    at = from + 1
    if mark == '{' or mark == '[' then
      depth = depth + 1
    elseif mark ~= '"' then
      depth = depth - 1
    else
      local to = end_of_string(text, at)
      if not to then return text end
      at = to + 1
      local value = depth == 1 and text:sub(from, to) == '"model"' and text:match('^%s*:%s*()"', at)
      if value then
        local last = end_of_string(text, value + 1)
        return last and text:sub(1, value - 1) .. model .. text:sub(last + 1) or text
      end
    end
  end
end

function envoy_on_request(handle)
  local headers, member = handle:headers(), {}
  for _, name in ipairs({'base', 'variable', 'key', 'model'}) do
    member[name] = headers:get('x-isochrone-member-' .. name)
    headers:remove('x-isochrone-member-' .. name)
  end
  headers:replace(':path', (member.base or '') .. headers:get('x-isochrone-path'):sub(4))
  if member.variable then
    for _, name in ipairs({'authorization', 'x-api-key', 'x-goog-api-key'}) do headers:remove(name) end
    local key = os.getenv(member.variable) or ''
    headers:add(member.key, member.key == 'authorization' and 'Bearer ' .. key or key)
  end
  if member.model and (headers:get('content-type') or ''):find('json') then
    local body = handle:body()
    if body then body:setBytes(with_model(body:getBytes(0, body:length()), member.model)) end
  end
end
"""
