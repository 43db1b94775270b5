// Which name somebody meant who wrote one that does not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace di {

/// "; did you mean NAME?" with the name of `known` that the fewest edits (a character added, left
/// out or replaced) lead to from `written`, or "" when every name is further away than a third of
/// its length. Of equals the first counts.
std::string suggestion(std::string_view written, const std::vector<std::string>& known);

}  // namespace di
