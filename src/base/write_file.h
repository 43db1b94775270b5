// Writing a small file so that nobody ever reads half of it.
#pragma once

#include <string>
#include <string_view>

namespace di {

/// Writes `text` beside `path` and renames it: whoever opens `path` finds what was there before or
/// all of the text, also when the machine stops in between. A file that is replaced keeps its
/// permissions; a new one gets the usual ones. Throws Error{kIo} naming the path and the reason;
/// then `path` is as it was.
void write_file_at_once(const std::string& path, std::string_view text);

}  // namespace di
