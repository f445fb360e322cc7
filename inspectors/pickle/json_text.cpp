#include "inspectors/pickle/json_text.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::inspect {
namespace {

using nlohmann::json;

// So many bytes are counted for a value, and for the key of an entry, beside their texts.
constexpr uint64_t kJsonValueCost = 64, kJsonKeyCost = 64;

/// nlohmann's own reader has no limit but with a callback, with which its time grows with the square of a list of
/// objects.
class JsonBuilder final : public nlohmann::json_sax<json> {
 public:
  JsonBuilder(ReadingLimit& limit, EqualKeys equal_keys) : limit_(limit), equal_keys_(equal_keys) {}
  json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override {
    limit_.take(value.size());
    return put(std::move(value));
  }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& key) override {
    limit_.take(kJsonKeyCost + key.size());
    if (equal_keys_ == EqualKeys::are_refused && open_.back()->contains(key))
      throw std::runtime_error(fmt::format("it names '{}' twice", key));
    key_ = std::move(key);
    return true;
  }
  bool start_object(size_t) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool put(json value) {
    limit_.take(kJsonValueCost);
    if (open_.empty())
      last_ = &(root_ = std::move(value));
    else if (open_.back()->is_array())
      last_ = &open_.back()->emplace_back(std::move(value));
    else
      last_ = &((*open_.back())[std::move(key_)] = std::move(value));
    return true;
  }
  bool open(json value) {
    put(std::move(value));
    open_.push_back(last_);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  ReadingLimit& limit_;
  const EqualKeys equal_keys_;
  json root_;
  std::vector<json*> open_;  // the innermost last; only that one grows
  json* last_ = nullptr;
  string_t key_;
};

}  // namespace

json read_json(std::string_view text, ReadingLimit& limit, EqualKeys equal_keys) {
  JsonBuilder builder(limit, equal_keys);
  return json::sax_parse(text, &builder) ? builder.take() : json(json::value_t::discarded);
}

}  // namespace lockstep::inspect
