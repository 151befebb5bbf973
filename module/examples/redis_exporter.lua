-- SPDX-License-Identifier: BSD-3-Clause
-- INFO dlock for redis_exporter, which does not export the sections of modules by itself:
--     redis_exporter --script redis_exporter.lua
-- gives redis_script_values{key="dlock_waiters"} and the like. Texts and histograms are left out.
local result = {}
for name, value in string.gmatch(redis.call('INFO', 'dlock'), '(dlock_[%w_]+):(%d+)\r?\n') do
    result[#result + 1] = name
    result[#result + 1] = value
end
return result
