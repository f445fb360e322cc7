#include "worker/cell/show.h"

#include <ATen/record_function.h>

#include <cmath>
#include <cstdio>
#include <ctime>
#include <sstream>

#include "inspectors/exchange/shown.h"
#include "protocol/number_text.h"
#include "protocol/utf8.h"
#include "worker/cell/show_text.h"
#include "worker/cell/values.h"
#include "worker/process/demangle.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr size_t kLongestText = 1 << 20;  // of one value; the rest is counted
constexpr size_t kLongestTextInFull = 32 << 20;
constexpr size_t kMaxElementsInFull = 1'000'000;  // of a container; a view may have no end
constexpr int64_t kSmallTensor = 64;      // elements that go into the JSON form
constexpr size_t kDeepest = 10;           // objects in one another; more is taken for an object that holds itself

json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

json nested(const at::Tensor& flat, at::IntArrayRef shape, int64_t& next) {
  if (shape.empty()) {
    const auto element = flat[next++];
    if (flat.scalar_type() == at::kBool) return element.item<bool>();
    if (at::isIntegralType(flat.scalar_type(), false)) return element.item<int64_t>();
    return number(element.item<double>());
  }
  json list = json::array();
  for (int64_t i = 0; i < shape[0]; ++i) list.push_back(nested(flat, shape.slice(1), next));
  return list;
}

json tensor_data(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_meta() || tensor.is_complex() ||
      tensor.is_quantized() || tensor.is_nested() || tensor.numel() > kSmallTensor)
    return nullptr;
  const auto flat = tensor.detach().to(at::kCPU).reshape({-1});
  int64_t next = 0;
  return nested(flat, tensor.sizes(), next);
}

/// A list, map or tuple that is being written.
struct Open {
  char kind = 'l';  // l, m, t, f
  size_t items = 0;
  json data;
  bool has_data = true;   // false once a member had no JSON form
  bool key_next = false, value_next = false;
  json key;
  std::vector<std::string> fields;  // names of the members
  size_t text_begin = 0;  // of its first member
  std::vector<size_t> members = {};  // where the text of each begins
  std::vector<size_t> values = {};   // and that of its value, after a name or a key
};

/// Members of more than one line (tensors) each begin a line of their own, indented.
void put_in_lines(std::string& text, const Open& open) {
  std::string result;
  for (size_t i = 0; i < open.members.size(); ++i) {
    const bool is_last = i + 1 == open.members.size();
    std::string member =
        text.substr(open.members[i], is_last ? std::string::npos : open.members[i + 1] - open.members[i]);
    if (!is_last) member.erase(member.size() - 2);  // ", "
    while (member.ends_with('\n')) member.pop_back();
    result += i > 0 ? ",\n  " : "\n  ";
    const std::string indent(2 + open.values[i] - open.members[i], ' ');
    for (const char c : member) {
      result += c;
      if (c == '\n') result += indent;
    }
  }
  text.resize(open.text_begin);
  text += result;
}

}  // namespace

struct ValueWriter::Impl {
  std::string text;
  json data;
  bool has_data = true;
  std::vector<Open> open;

  /// Takes a value that is complete, and puts it where it belongs.
  void value(std::string_view shown, json form, bool has_form = true) {
    text += shown;
    place(std::move(form), has_form);
  }

  void place(json form, bool has_form) {
    if (open.empty()) {
      data = std::move(form);
      has_data = has_form;
      return;
    }
    Open& top = open.back();
    if (!has_form) top.has_data = false;
    if (!top.fields.empty()) {
      top.data[top.fields.at(top.items - 1)] = std::move(form);
    } else if (top.kind != 'm') {
      top.data.push_back(std::move(form));
    } else if (top.key_next) {
      top.key_next = false;
      top.value_next = true;
      top.key = std::move(form);
      text += ": ";
      if (!top.values.empty()) top.values.back() = text.size();
    } else if (top.value_next) {
      top.value_next = false;
      if (top.key.is_string() && top.data.is_object())
        top.data[top.key.get<std::string>()] = std::move(form);
      else
        as_pairs(top).push_back(json::array({std::move(top.key), std::move(form)}));
    }
  }

  /// Keys that are no strings can't be names in JSON: the map becomes a list of pairs.
  static json& as_pairs(Open& map) {
    if (map.data.is_object()) {
      json pairs = json::array();
      for (auto& [key, value] : map.data.items()) pairs.push_back(json::array({key, value}));
      map.data = std::move(pairs);
    }
    return map.data;
  }
};

ValueWriter::ValueWriter() : impl_(std::make_unique<Impl>()) {}
ValueWriter::~ValueWriter() = default;

void ValueWriter::boolean(bool value) { impl_->value(value ? "true" : "false", value); }
void ValueWriter::integer(int64_t value) { impl_->value(std::to_string(value), value); }
void ValueWriter::natural(uint64_t value) { impl_->value(std::to_string(value), value); }
void ValueWriter::real(double value, int digits) { impl_->value(shortest(value, digits), number(value)); }
void ValueWriter::character(uint32_t code) {
  // A char above 0x7f is a byte of something; it stands for no character.
  std::string text;
  append_utf8(text, code);
  impl_->value(escaped(text, '\''), text);
}
void ValueWriter::string(std::string_view value) {
  impl_->value(escaped(value.substr(0, kLongestText), '"'), std::string(value.substr(0, kLongestText)));
}
void ValueWriter::null(std::string_view text) { impl_->value(text, nullptr); }

void ValueWriter::long_real(long double value) { impl_->value(shortest(value), number(static_cast<double>(value))); }
void ValueWriter::big_integer(unsigned __int128 value, bool is_negative) {
  const std::string text = decimal(value, is_negative);
  impl_->value(text, text);
}
void ValueWriter::wide_string(const void* units, size_t count, size_t bytes_each) {
  const std::string text = utf8(units, std::min(count, kLongestText), bytes_each);
  impl_->value(escaped(text, '"'), text);
}

void ValueWriter::tensor(const at::Tensor& value) {
  inspect::note_shown(value);
  const at::RecordFunctionGuard unseen(false);  // what printing calls is nothing that the cell has called
  auto data = tensor_data(value);
  const bool has_data = !data.is_null();
  impl_->value(text_of_tensor(value), std::move(data), has_data);
}

void ValueWriter::module(const torch::nn::Module& value) {
  const at::RecordFunctionGuard unseen(false);
  impl_->value(text_of_module(value), nullptr, false);
}

void ValueWriter::pointer(const void* value, const std::type_info& pointee) {
  impl_->value("(" + worker::demangle(pointee) + "*) " + hexadecimal("0x", reinterpret_cast<uintptr_t>(value)), nullptr,
               false);
}

void ValueWriter::enumerator(int64_t value, const std::type_info& type, const char* names) {
  const auto arguments = template_arguments(names);
  for (size_t i = 0; i < arguments.size(); ++i)
    if (detail::enumerator_tried(i) == value && !arguments[i].starts_with('('))
      return impl_->value(arguments[i], value);
  impl_->value(worker::demangle(type) + "(" + std::to_string(value) + ")", value);
}

void ValueWriter::duration(double count, int64_t numerator, int64_t denominator) {
  const double seconds = count * static_cast<double>(numerator) / static_cast<double>(denominator);
  const double magnitude = std::abs(seconds);
  const std::string text = magnitude >= 1 || magnitude == 0 ? shortest(seconds) + " s"
                           : magnitude >= 1e-3              ? shortest(seconds * 1e3) + " ms"
                           : magnitude >= 1e-6              ? shortest(seconds * 1e6) + " us"
                                                            : shortest(seconds * 1e9) + " ns";
  impl_->value(text, number(seconds));
}

void ValueWriter::time(double seconds, bool is_of_day) {
  if (!is_of_day) return duration(seconds, 1, 1);
  const auto whole = static_cast<std::time_t>(std::floor(seconds));
  std::tm parts = {};
  char text[64];
  if (!::gmtime_r(&whole, &parts) || std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts) == 0)
    return duration(seconds, 1, 1);
  char fraction[16];
  std::snprintf(fraction, sizeof fraction, ".%03d UTC", static_cast<int>((seconds - std::floor(seconds)) * 1000));
  impl_->value(std::string(text) + fraction, number(seconds));
}

void ValueWriter::exception(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);  // which appends a stack to what()
  const std::string text = of_torch ? of_torch->what_without_backtrace() : error.what();
  impl_->value("<" + worker::demangle(typeid(error)) + ": " + text + ">", text);
}

void ValueWriter::exception(const std::exception_ptr& error) {
  if (!error) return null("nullptr");
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    exception(known);
  } catch (...) {  // of a type that only the cell knows
    impl_->value("<" + worker::demangle(*error.__cxa_exception_type()) + ">", nullptr, false);
  }
}

void ValueWriter::lambda(const char* text_of_type) {
  impl_->value("<" + place_of_lambda(text_of_type) + ">", nullptr, false);
}

void ValueWriter::iterator(const std::type_info& element) {
  impl_->value("<iterator to " + worker::demangle(element) + ">", nullptr, false);
}

void ValueWriter::holder(const char* name, const std::type_info& held) {
  impl_->value("<" + std::string(name) + (held == typeid(void) ? ", empty>" : " of " + worker::demangle(held) + ">"),
               nullptr, false);
}

void ValueWriter::streamed(const void* value, void (*print)(std::ostream&, const void*)) {
  std::ostringstream stream;
  print(stream, value);
  impl_->value(stream.str(), nullptr, false);
}

void ValueWriter::report(const void* value, void (*print)(std::ostream&, const void*), const std::string& data) {
  std::ostringstream stream;
  print(stream, value);
  impl_->value(stream.str(), json::parse(data));
}

void ValueWriter::name_of(const std::type_info& type) {
  impl_->value("<" + worker::demangle(type) + ">", nullptr, false);
}

void ValueWriter::begin_list() {
  impl_->open.push_back({.kind = 'l', .data = json::array()});
  impl_->text += '{';
}
void ValueWriter::begin_map() {
  impl_->open.push_back({.kind = 'm', .data = json::object()});
  impl_->text += '{';
}
void ValueWriter::begin_tuple() {
  impl_->open.push_back({.kind = 't', .data = json::array()});
  impl_->text += '(';
}

bool ValueWriter::begin_fields(const std::type_info& type, const char* names) {
  const std::string name = worker::demangle(type);
  if (impl_->open.size() >= kDeepest) {
    impl_->value(name + "{...}", nullptr, false);
    return false;
  }
  Open fields{.kind = 'f', .data = json::array()};
  for (const auto argument : template_arguments(names))
    fields.fields.emplace_back(argument.substr(argument.rfind('.') + 1));
  if (!fields.fields.empty()) fields.data = json::object();
  impl_->open.push_back(std::move(fields));
  impl_->text += name + "{";
  return true;
}

bool ValueWriter::item() {
  Open& top = impl_->open.back();
  const bool in_full = worker::shows_in_full();
  const bool enough = top.items >= (in_full ? kMaxElementsInFull : kMaxElements) ||
                      impl_->text.size() > (in_full ? kLongestTextInFull : kLongestText);
  if (enough && top.kind != 'f' && top.kind != 't') return false;
  if (top.items == 0) top.text_begin = impl_->text.size();
  if (top.items++ > 0) impl_->text += ", ";
  top.members.push_back(impl_->text.size());
  if (!top.fields.empty()) impl_->text += "." + top.fields.at(top.items - 1) + " = ";
  top.values.push_back(impl_->text.size());
  return true;
}

void ValueWriter::key() { impl_->open.back().key_next = true; }

void ValueWriter::end(size_t left_out) {
  Open top = std::move(impl_->open.back());
  impl_->open.pop_back();
  const bool in_lines = top.items > 0 && impl_->text.find('\n', top.text_begin) != std::string::npos;
  if (in_lines) put_in_lines(impl_->text, top);
  if (left_out > 0) impl_->text += (in_lines ? ",\n  ... and " : ", ... and ") + std::to_string(left_out) + " more";
  if (in_lines) impl_->text += '\n';
  impl_->text += top.kind == 't' ? ')' : '}';
  impl_->place(std::move(top.data), top.has_data && left_out == 0);
}

void ValueWriter::send(std::string_view label) {
  auto& text = impl_->text;
  const size_t longest = worker::shows_in_full() ? kLongestTextInFull : kLongestText;
  if (text.size() > longest) {
    const size_t more = text.size() - longest;
    text.resize(longest);
    text += "... and " + std::to_string(more) + " bytes more";
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  worker::post_value({.text = std::move(text),
                      .data = impl_->has_data ? std::move(impl_->data) : json(),
                      .as_range = shows_ranks_as_range(),
                      .label = std::string(label)});
}

}  // namespace lockstep
