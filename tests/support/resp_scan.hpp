// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::test {

/// The beginning of a buffer.
enum class Scan { complete, incomplete, invalid };

/// One request at the start of `buffer`: an array of bulk strings, or an inline command.
Scan scanRequest(std::string_view buffer, std::size_t& length, std::vector<std::string>& argv);

/// One RESP2 or RESP3 reply from `pos` on. The scalars directly below a top-level aggregate are
/// collected in `parts` (at most three), to tell pub/sub messages from replies.
Scan scanReply(std::string_view buffer,
               std::size_t& pos,
               int depth,
               std::vector<std::string>& parts);

}  // namespace rlock::test
