#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "inspectors/subject/subject.h"

namespace lockstep::inspect {

void number_equal_names(std::vector<Item>& items) {
  std::map<std::string_view, int> times;
  for (const Item& each : items) times[each.name] = 0;
  if (times.size() == items.size()) return;
  std::set<std::string> taken;
  for (const Item& each : items) taken.insert(each.name);
  std::map<std::string, int> seen;
  for (Item& each : items) {
    int& number = seen[each.name];
    if (++number == 1) continue;
    std::string name = fmt::format("{}#{}", each.name, number);
    while (!taken.insert(name).second) name = fmt::format("{}#{}", each.name, ++number);
    each.name = std::move(name);
  }
}

}  // namespace lockstep::inspect
