#include "collectives/watch/collective_mismatch.h"

#include <mutex>
#include <utility>

namespace lockstep::dist {

namespace {
std::mutex place_mutex;
PlaceOf place_function;
}  // namespace

void set_place_of(PlaceOf place_of) {
  std::lock_guard lock(place_mutex);
  place_function = std::move(place_of);
}

std::string place_of(const CollectiveRecord& record, const CollectiveLogReader& here) {
  if (const std::string place = record.place.str(); !place.empty()) return place;
  PlaceOf function;
  {
    std::lock_guard lock(place_mutex);
    function = place_function;
  }
  if (!function || !record.site_cell) return {};
  const uint64_t address = here.code_address(*record.site_cell, record.site_offset);
  return address == 0 ? std::string() : function(address);
}

}  // namespace lockstep::dist
