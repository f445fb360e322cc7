#include "worker/show.h"

#include <ATen/record_function.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "inspectors/shown.h"
#include "worker/demangle.h"
#include "worker/values.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr size_t kLongestText = 1 << 20;  // of one value; the rest is counted
constexpr int64_t kSmallTensor = 64;      // elements that go into the JSON form

json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

std::string hexadecimal(const char* prefix, uintptr_t value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%s%02zx", prefix, value);
  return digits;
}

std::string escaped(std::string_view value, char quote) {
  std::string text(1, quote);
  for (const char c : value) {
    switch (c) {
      case '\n':
        text += "\\n";
        break;
      case '\t':
        text += "\\t";
        break;
      case '\r':
        text += "\\r";
        break;
      case '\\':
        text += "\\\\";
        break;
      default:
        if (c == quote)
          text += {'\\', c};
        else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
          text += hexadecimal("\\x", static_cast<unsigned char>(c));
        else
          text += c;
    }
  }
  return text += quote;
}

std::string utf8(uint32_t code) {
  std::string text;
  const auto byte = [&text](uint32_t value) { text += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6);
    byte(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  } else {
    byte(0xf0 | (code >> 18 & 0x07));
    byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  }
  return text;
}

/// Shortest text that reads back as the same number.
std::string shortest(double value, int digits = 17) {
  char text[64];
  const auto end = digits <= 9 ? std::to_chars(text, text + sizeof text, static_cast<float>(value)).ptr
                               : std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
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
      tensor.is_quantized() || tensor.numel() > kSmallTensor)
    return nullptr;
  const auto flat = tensor.detach().to(at::kCPU).reshape({-1});
  int64_t next = 0;
  return nested(flat, tensor.sizes(), next);
}

/// A list, map or tuple that is being written.
struct Open {
  char kind = 'l';  // l, m, t
  size_t items = 0;
  json data;
  bool has_data = true;   // false once a member had no JSON form
  bool key_next = false, value_next = false;
  json key;
};

}  // namespace

struct ValueWriter::Impl {
  std::string text;
  json data;
  bool has_data = true;
  std::vector<Open> open;

  /// One value is complete: puts it where it belongs.
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
    if (top.kind != 'm') {
      top.data.push_back(std::move(form));
    } else if (top.key_next) {
      top.key_next = false;
      top.value_next = true;
      top.key = std::move(form);
      text += ": ";
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
  const std::string text = code < 0x80 ? std::string(1, static_cast<char>(code)) : utf8(code);
  impl_->value(escaped(text, '\''), text);
}
void ValueWriter::string(std::string_view value) {
  impl_->value(escaped(value.substr(0, kLongestText), '"'), std::string(value.substr(0, kLongestText)));
}
void ValueWriter::null(std::string_view text) { impl_->value(text, nullptr); }

void ValueWriter::tensor(const at::Tensor& value) {
  inspect::note_shown(value);
  const at::RecordFunctionGuard unseen(false);  // what printing calls is nothing that the cell has called
  std::ostringstream stream;
  stream << value;
  auto data = tensor_data(value);
  const bool has_data = !data.is_null();
  impl_->value(stream.str(), std::move(data), has_data);
}

void ValueWriter::pointer(const void* value, const std::type_info& pointee) {
  impl_->value("(" + worker::demangle(pointee) + "*) " + hexadecimal("0x", reinterpret_cast<uintptr_t>(value)), nullptr,
               false);
}

void ValueWriter::enumerator(int64_t value, const std::type_info& type) {
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

void ValueWriter::streamed(const void* value, void (*print)(std::ostream&, const void*)) {
  std::ostringstream stream;
  print(stream, value);
  impl_->value(stream.str(), nullptr, false);
}

void ValueWriter::name_of(const std::type_info& type) {
  impl_->value("<" + worker::demangle(type) + ">", nullptr, false);
}

void ValueWriter::begin_list() {
  impl_->open.push_back({'l', 0, json::array(), true, false, false, {}});
  impl_->text += '{';
}
void ValueWriter::begin_map() {
  impl_->open.push_back({'m', 0, json::object(), true, false, false, {}});
  impl_->text += '{';
}
void ValueWriter::begin_tuple() {
  impl_->open.push_back({'t', 0, json::array(), true, false, false, {}});
  impl_->text += '(';
}

bool ValueWriter::item() {
  Open& top = impl_->open.back();
  if (top.items >= kMaxElements || impl_->text.size() > kLongestText) return false;
  if (top.items++ > 0) impl_->text += ", ";
  return true;
}

void ValueWriter::key() { impl_->open.back().key_next = true; }

void ValueWriter::end(size_t left_out) {
  Open top = std::move(impl_->open.back());
  impl_->open.pop_back();
  if (left_out > 0) impl_->text += ", ... and " + std::to_string(left_out) + " more";
  impl_->text += top.kind == 't' ? ')' : '}';
  impl_->place(std::move(top.data), top.has_data && left_out == 0);
}

void ValueWriter::send() {
  auto& text = impl_->text;
  if (text.size() > kLongestText) {
    const size_t more = text.size() - kLongestText;
    text.resize(kLongestText);
    text += "... and " + std::to_string(more) + " bytes more";
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  worker::post_value(std::move(text), impl_->has_data ? std::move(impl_->data) : json());
}

}  // namespace lockstep
