// Reads Python's pickle (protocols 2 to 5) of torch.save as data. Nothing is imported or called: a call becomes a value
// with the function and its arguments. Format: Lib/pickletools.py of CPython.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inspectors/pickle/reading_limit.h"

namespace lockstep::inspect {

struct PickledValue;
using Pickled = std::shared_ptr<PickledValue>;  // shared, as Python's objects

struct PickledValue {
  enum class Kind {
    kPlain,  // None, a bool or a number: `text`, as Python writes it
    kText,
    kBytes,  // in `text`
    kList,  // a list or a tuple: `items`
    kSet,
    kDictionary,  // `entries`
    kName,  // of a class or function: `text`, "torch.float32"
    kCall,  // of items[0] with the arguments items[1]; then `entries`, further items and `state` were set
    kPersistent,  // items[0]: for torch.save a storage
  };
  Kind kind = Kind::kPlain;
  std::string text;
  std::vector<Pickled> items;
  std::vector<std::pair<Pickled, Pickled>> entries;
  Pickled state;

  bool is_call_of(std::string_view name) const {
    return kind == Kind::kCall && items[0]->kind == Kind::kName && items[0]->text == name;
  }
};

/// Holds all values of a pickle. Values can contain themselves and one another to any depth, so the destructor clears
/// them one by one.
struct PickledValues : std::vector<Pickled> {
  PickledValues() = default;
  PickledValues(const PickledValues&) = delete;
  PickledValues& operator=(const PickledValues&) = delete;
  ~PickledValues();
};

/// Owns its values: they are valid during its lifetime.
class Pickle {
 public:
  /// Throws std::runtime_error for bytes that are no pickle, or that have an opcode which torch.save does not write,
  /// and ReadingLimitError for values that take more than `limit`.
  explicit Pickle(std::string_view bytes, ReadingLimit limit = ReadingLimit());
  const Pickled& value() const { return value_; }
  /// Returns what its values have left of the limit.
  const ReadingLimit& limit() const { return limit_; }

 private:
  ReadingLimit limit_;
  PickledValues all_;
  Pickled value_;
};

/// Returns the value of an integer. Throws std::runtime_error for other values.
int64_t integer_of(const Pickled& value);

/// Returns a text similar to Python's repr, and the same for equal values; sets are sorted. Takes what it needs from
/// `limit`. Throws std::runtime_error for values that contain one another too deeply or too often.
std::string text_of(const Pickled& value, ReadingLimit& limit);
/// Returns the same for a message: its first characters, whatever the value is.
std::string short_text_of(const Pickled& value);
bool is_none(const Pickled& value);
/// Whether it is None, or a set or dictionary without elements.
bool is_empty(const Pickled& value);
/// Returns the shortest text that gives this number; always with a point or exponent, so that 1.0 is not 1.
std::string text_of(double value);

}  // namespace lockstep::inspect
