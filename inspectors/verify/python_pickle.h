// Python's pickle (protocols 2 to 5), as torch.save writes it: read as data. Nothing is imported, called or built; what
// Python would call stays a call, with its arguments. Format: Lib/pickletools.py of CPython.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::inspect {

struct PickledValue;
using Pickled = std::shared_ptr<PickledValue>;  // shared as Python's objects are

struct PickledValue {
  enum class Kind {
    kPlain,  // None, a bool or a number: `text` as Python writes it
    kText,
    kBytes,  // in `text`
    kList,  // a list or a tuple: `items`
    kSet,
    kDictionary,  // `entries`
    kName,  // of a class or function: `text`, "torch.float32"
    kCall,  // items[0] called with items[1]; then `entries` and list items were put into it, and `state` handed to it
    kPersistent,  // items[0]: torch.save's word for a storage
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

/// All values of a pickle. They may contain themselves, and one another to any depth: in the end they are taken apart
/// one by one.
struct PickledValues : std::vector<Pickled> {
  PickledValues() = default;
  PickledValues(const PickledValues&) = delete;
  PickledValues& operator=(const PickledValues&) = delete;
  ~PickledValues();
};

/// A pickle that has been read; its values are whole as long as it lives.
class Pickle {
 public:
  /// Throws std::runtime_error for bytes that are no pickle, or that use an opcode which torch.save does not write.
  explicit Pickle(std::string_view bytes);
  const Pickled& value() const { return value_; }

 private:
  PickledValues all_;
  Pickled value_;
};

/// A whole number that it holds. Throws std::runtime_error where it holds none.
int64_t integer_of(const Pickled& value);

/// As Python would nearly write it: the same text for the same value. Sets in order. Throws std::runtime_error for
/// values that contain one another too deeply, or in too many places.
std::string text_of(const Pickled& value);
/// Shortest text of this number and of no other; of a whole one with its point, so that 1.0 is not 1.
std::string text_of(double value);

}  // namespace lockstep::inspect
