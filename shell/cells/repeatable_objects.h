// Lets the same text run again without the compiler where nothing has been defined since: the object that was compiled
// for it is loaded already, and runs once more.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "shell/cells/cell_request.h"

namespace lockstep::shell {

/// The object to run for a text.
struct CellObject {
  int64_t id = 0;  // of the cell that it was compiled for
  int64_t number = 0;  // and what people call that one
  bool empty = false;  // comments only
};

class RepeatableObjects {
 public:
  /// Notes that `object` is loaded on the request's ranks, and may run again.
  void remember(const CellRequest& request, const CellObject& object);
  /// Returns the object for the request. `definitions` is their number in the session: where it has changed, all
  /// objects are forgotten.
  std::optional<CellObject> find(const CellRequest& request, int64_t definitions);
  void forget() { objects_.clear(); }

 private:
  /// The inputs that decide, with the definitions so far, what a text compiles to.
  using Source = std::tuple<std::string, RankSet, int, bool, std::string>;
  static Source source_of(const CellRequest& request);

  std::map<Source, CellObject> objects_;
  int64_t definitions_ = 0;
};

}  // namespace lockstep::shell
