// Turns the value of an expression into text and JSON. Templates only take a value apart; everything that builds text
// lives in the worker, so that a cell pays little to show something.
//
// What is shown: numbers, strings and enumerators as one would write them, tensors as PyTorch prints them, modules as a
// tree with the numbers of their parameters, containers, pairs and tuples element by element, exceptions with their
// text, anything else with an operator<<, aggregates field by field, and the name of its type where there is nothing
// better. Expressions of type void and streams (std::cout << x) show nothing.
//
// A value that can't be shown must not cost the cell. No template here instantiates what a user wrote, but for the
// operator<< of a class; where that does not compile, the compiler of cells shows the type alone (kTypeAlone).
#pragma once
#include <torch/torch.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <ranges>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>

#include "inspectors/exchange/report.h"
#include "worker/cell/kept_values.h"
#include "worker/cell/show_fields.h"
#include "worker/cell/show_kinds.h"

namespace lockstep {

/// How tensors are written: show::options({.precision = 2}), as torch.set_printoptions. Options that are not given stay
/// as they are. Options hold on the rank that sets them, until they are set again.
struct ShowOptions {
  std::optional<int> precision;  // digits after the point, 4 by default; at most 17
  std::optional<int64_t> threshold;  // elements from which on only the edges are written, 1000 by default
  std::optional<int64_t> edgeitems;  // of each dimension, at both ends, 3 by default
  std::optional<int> linewidth;  // columns, 80 by default
  std::optional<bool> sci_mode;  // 1.0000e+00 always or never; by default where the numbers need it
  std::optional<std::string>
      profile;  // all of the above: "default", "short" (2 digits, 2 edge items), "full" (no limit)
  std::optional<std::string> ranks;  // numbers that differ between ranks: "each" (default), a line for each rank, or
      // "range", one line: 0-7 = 1.21 … 1.34 (spread 0.13, mean 1.27, lowest rank 3, highest rank 5)
};

/// Throws std::invalid_argument for a number that is out of range and for an unknown profile or form of ranks; nothing
/// is set then.
void set_show_options(const ShowOptions& options) __asm__("lockstep_cell_show_options");

/// Takes a value apart into text and JSON side by side. A cell uses it through show(); its functions are the worker's.
class ValueWriter {
 public:
  static constexpr size_t kMaxElements = 1000;  // of one container; the rest is counted

  ValueWriter();
  ~ValueWriter();
  ValueWriter(const ValueWriter&) = delete;
  ValueWriter& operator=(const ValueWriter&) = delete;

  void boolean(bool value);
  void integer(int64_t value);
  void natural(uint64_t value);
  void real(double value, int digits);
  void long_real(long double value);
  void big_integer(unsigned __int128 value, bool is_negative);
  void character(uint32_t code);
  void string(std::string_view value);
  void wide_string(const void* units, size_t count, size_t bytes_each);  // UTF-8, UTF-16 or UTF-32, by the size
  void null(std::string_view text);  // nullptr, nullopt
  void tensor(const at::Tensor& value);
  void module(const torch::nn::Module& value);
  void pointer(const void* value, const std::type_info& pointee);
  /// `names` is what names_of() says of the values of enumerator_tried(); empty where nothing is known.
  void enumerator(int64_t value, const std::type_info& type, const char* names);
  void duration(double count, int64_t numerator, int64_t denominator);
  void time(double seconds, bool is_of_day);  // since the clock's epoch; of_day: the system's clock
  void exception(const std::exception& error);
  void exception(const std::exception_ptr& error);
  void lambda(const char* text_of_type);
  void iterator(const std::type_info& element);
  void holder(const char* name, const std::type_info& held);
  void streamed(const void* value, void (*print)(std::ostream&, const void*));
  /// `data` is the text of the JSON form of what is printed.
  void report(const void* value, void (*print)(std::ostream&, const void*), const std::string& data);
  void name_of(const std::type_info& type);  // of which no more is known

  // These write {1, 2, 3}, {"a": 1, "b": 2}, (1, "x") and Point{.x = 1, .y = 2}: begin, then item() or key() before
  // each element, then end().
  void begin_list();
  void begin_map();
  void begin_tuple();
  /// `names` is a list whose members end in the fields' names, as field_names() has it; empty: the fields have none.
  /// Returns false where too many are open (an object that holds itself): the name of the type has been written, and
  /// nothing is to end.
  bool begin_fields(const std::type_info& type, const char* names);
  bool item();  // false: enough has been shown; count the rest and end
  void key();  // the next two values are a key and what it leads to
  void end(size_t left_out = 0);

  /// Sends what was written as a value of the running cell, after all output that was written before.
  void send(std::string_view label);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace detail {

template <int Fresh, typename T>
void write(ValueWriter& out, T& value);

template <int Fresh, typename T>
void write_range(ValueWriter& out, T& range) {
  using Element = std::remove_cvref_t<decltype(*std::ranges::begin(range))>;
  constexpr bool keyed = KeyedItem<Element> || requires { typename T::mapped_type; };
  if constexpr (keyed)
    out.begin_map();
  else
    out.begin_list();
  size_t shown = 0, left_out = 0;
  for (auto&& element : range) {
    if (left_out == 0 && out.item()) {
      ++shown;
    } else {
      ++left_out;
      if constexpr (std::ranges::sized_range<T>) {
        left_out = std::ranges::size(range) - shown;
      } else if (left_out < 100 * ValueWriter::kMaxElements) {  // a view may have no end
        continue;
      }
      break;
    }
    if constexpr (KeyedItem<Element>) {
      out.key();
      write<Fresh>(out, element.key());
      write<Fresh>(out, element.value());
    } else if constexpr (keyed) {
      out.key();
      write<Fresh>(out, element.first);
      write<Fresh>(out, element.second);
    } else {
      write<Fresh>(out, element);
    }
  }
  out.end(left_out);
}

template <int Fresh, typename T>
void write_fields(ValueWriter& out, const T& value) {
  constexpr size_t count = count_fields<T>();
  if constexpr (count == 0) {
    if (out.begin_fields(typeid(T), "")) out.end();
  } else if constexpr (count <= kMostFields) {
#ifdef __clang__
    constexpr const char* names = field_names<T, count>();
#else
    constexpr const char* names = "";
#endif
    if (!out.begin_fields(typeid(T), names)) return;
    visit_fields<count>(value, [&out](const auto&... fields) { ((out.item(), write<Fresh>(out, fields)), ...); });
    out.end();
  } else {
    out.name_of(typeid(T));
  }
}

/// Writes characters other than char, in units of their size.
template <typename Unit>
void write_wide(ValueWriter& out, std::basic_string_view<Unit> text) {
  out.wide_string(text.data(), text.size(), sizeof(Unit));
}

template <int Fresh, typename V>
void write_number(ValueWriter& out, V value) {
  if constexpr (std::is_same_v<V, bool>)
    out.boolean(value);
  else if constexpr (kIsCharacter<V>)
    out.character(static_cast<uint32_t>(static_cast<std::make_unsigned_t<V>>(value)));
  else if constexpr (std::is_same_v<V, long double>)
    out.long_real(value);
  else if constexpr (std::is_floating_point_v<V>)
    out.real(static_cast<double>(value), std::numeric_limits<V>::max_digits10);
  else if constexpr (std::is_signed_v<V>)
    out.integer(static_cast<int64_t>(value));
  else
    out.natural(static_cast<uint64_t>(value));
}

template <int Fresh, typename V>
void write_enumerator(ValueWriter& out, V value) {
#ifdef __clang__
  constexpr const char* names = enumerator_names<V>(std::make_index_sequence<kEnumeratorsTried>());
#else
  constexpr const char* names = "";
#endif
  out.enumerator(static_cast<int64_t>(value), typeid(V), names);
}

template <int Fresh, typename V>
void write_pointer(ValueWriter& out, V value) {
  using Pointee = std::remove_pointer_t<V>;
  if (value == nullptr)
    out.null("nullptr");
  else if constexpr (std::is_function_v<Pointee>)
    out.name_of(typeid(Pointee));
  else
    out.pointer(const_cast<const void*>(static_cast<const volatile void*>(value)), typeid(Pointee));
}

template <int Fresh, typename V>
void write_smart_pointer(ValueWriter& out, const V& value) {
  using Pointee = typename V::element_type;
  if (!static_cast<bool>(value))
    out.null("nullptr");
  else if constexpr (std::is_void_v<Pointee> || std::is_array_v<Pointee>)
    out.pointer(value.get(), typeid(Pointee));
  else
    write<Fresh>(out, *value);
}

/// Writes text. It is bounded by the array where it is one, which need not end with a zero.
template <typename V>
void write_string(ValueWriter& out, const V& value) {
  if constexpr (std::is_array_v<V>) {
    size_t length = 0;
    while (length < std::extent_v<V> && value[length] != '\0') ++length;
    out.string({value, length});
  } else if constexpr (std::is_pointer_v<V>) {
    if (value == nullptr) return out.null("nullptr");
    out.string(value);
  } else {
    out.string(std::string_view(value));
  }
}

template <typename V>
void write_wide_string(ValueWriter& out, const V& value) {
  if constexpr (std::is_pointer_v<V>) {
    if (value == nullptr) return out.null("nullptr");
  }
  if constexpr (std::is_array_v<V>) {
    size_t length = 0;
    while (length < std::extent_v<V> && value[length] != 0) ++length;
    out.wide_string(value, length, sizeof value[0]);
  } else if constexpr (StringOf<V, wchar_t>) {
    write_wide<wchar_t>(out, value);
  } else if constexpr (StringOf<V, char8_t>) {
    write_wide<char8_t>(out, value);
  } else if constexpr (StringOf<V, char16_t>) {
    write_wide<char16_t>(out, value);
  } else {
    write_wide<char32_t>(out, value);
  }
}

template <typename V>
struct Opened : V {
  static const auto& elements(const V& adaptor) { return adaptor.*&Opened::c; }
};

template <int Fresh, typename V, typename T>
void write_other(ValueWriter& out, T& value);

template <int Fresh, typename V>
void write_streamed(ValueWriter& out, const V& value) {
  out.streamed(std::addressof(value),
               [](std::ostream& stream, const void* object) { stream << *static_cast<const V*>(object); });
}

/// Writes reports of inspectors that have a JSON form.
template <typename V>
concept ReportWithData = std::is_base_of_v<inspect::Report, V> && requires(const V& value) {
  { report_data(value) } -> std::same_as<std::string>;
};

template <typename V>
void write_report(ValueWriter& out, const V& value) {
  out.report(
      std::addressof(value), [](std::ostream& stream, const void* object) { stream << *static_cast<const V*>(object); },
      report_data(value));
}

/// What is a value by its parts comes before any operator<<: LibTorch's, for pairs and containers, does not compile
/// where a part has none, and conversions make `1` of much.
template <int Fresh, typename V, typename T>
void write_object(ValueWriter& out, T& value) {
  if constexpr (std::is_member_pointer_v<V>) {
    out.name_of(typeid(V));
  } else if constexpr (SmartPointer<V>) {
    write_smart_pointer<Fresh, V>(out, value);
  } else if constexpr (WeakPointer<V>) {
    write_smart_pointer<Fresh>(out, value.lock());
  } else if constexpr (std::is_base_of_v<torch::detail::ModuleHolderIndicator, V>) {
    if (value.is_empty())
      out.null("nullptr");
    else
      write<Fresh>(out, *value.ptr());
  } else if constexpr (std::is_base_of_v<torch::nn::Module, V>) {
    out.module(value);
  } else if constexpr (kIsDuration<V>) {
    out.duration(static_cast<double>(value.count()), V::period::num, V::period::den);
  } else if constexpr (kIsTimePoint<V>) {
    const std::chrono::duration<double> since = value.time_since_epoch();
    out.time(since.count(), std::is_same_v<typename V::clock, std::chrono::system_clock>);
  } else if constexpr (kIsOptional<V>) {
    if (value)
      write<Fresh>(out, *value);
    else
      out.null("nullopt");
  } else if constexpr (kIsVariant<V>) {
    if (value.valueless_by_exception())
      out.null("valueless");
    else
      std::visit([&out](auto& held) { write<Fresh>(out, held); }, value);
  } else if constexpr (kIsReference<V>) {
    write<Fresh>(out, value.get());
  } else if constexpr (kIsAtomic<V>) {
    const auto now = value.load();
    write<Fresh>(out, now);
  } else if constexpr (kIsTuple<V>) {
    out.begin_tuple();
    std::apply([&out](auto&... members) { ((out.item(), write<Fresh>(out, members)), ...); }, value);
    out.end();
  } else if constexpr (kIsExample<V>) {
    if (out.begin_fields(typeid(V), "data, target")) {
      (out.item(), write<Fresh>(out, value.data));
      (out.item(), write<Fresh>(out, value.target));
      out.end();
    }
  } else if constexpr (std::is_same_v<V, std::vector<bool>::reference>) {
    out.boolean(static_cast<bool>(value));
  } else if constexpr (std::is_base_of_v<std::exception, V>) {
    out.exception(value);
  } else if constexpr (std::is_same_v<V, std::exception_ptr>) {
    out.exception(value);
  } else if constexpr (std::is_base_of_v<std::type_info, V>) {
    out.name_of(value);
  } else if constexpr (Container<V>) {
    write_range<Fresh>(out, value);
  } else if constexpr (Adaptor<V>) {
    write_range<Fresh>(out, Opened<V>::elements(value));
  } else if constexpr (Ordering<V>) {
    out.null(value < 0 ? "less" : value > 0 ? "greater" : value == 0 ? "equal" : "unordered");
  } else {
    write_other<Fresh, V>(out, value);
  }
}

/// Writes the value by an operator<<; without one by its parts, or by the name of its type.
template <int Fresh, typename V, typename T>
void write_other(ValueWriter& out, T& value) {
  if constexpr (ReportWithData<V>) {
    write_report<V>(out, value);
  } else if constexpr (Streamable<V, Fresh>) {
    write_streamed<Fresh, V>(out, value);
  } else if constexpr (std::ranges::range<T>) {
    write_range<Fresh>(out, value);
  } else if constexpr (TupleLike<V>) {
    out.begin_tuple();
    std::apply([&out](auto&... members) { ((out.item(), write<Fresh>(out, members)), ...); }, value);
    out.end();
  } else if constexpr (std::input_or_output_iterator<V> && requires { typename std::iter_value_t<V>; }) {
    out.iterator(typeid(std::iter_value_t<V>));
  } else if constexpr (std::is_same_v<V, std::any>) {
    out.holder("std::any", value.type());
  } else if constexpr (std::is_polymorphic_v<V>) {
    out.name_of(typeid(value));
  } else if constexpr (std::is_aggregate_v<V> && std::is_class_v<V> && !std::is_volatile_v<T>) {
    write_fields<Fresh, V>(out, value);
  } else {
    out.name_of(typeid(V));
  }
}

template <int Fresh, typename T>
void write(ValueWriter& out, T& value) {
  using V = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<V, at::Tensor>) {
    out.tensor(value);
  } else if constexpr (std::is_same_v<V, __int128> || std::is_same_v<V, unsigned __int128>) {
    out.big_integer(static_cast<unsigned __int128>(value), value < 0);
  } else if constexpr (std::is_arithmetic_v<V>) {
    write_number<Fresh, V>(out, value);
  } else if constexpr (std::is_null_pointer_v<V>) {
    out.null("nullptr");
  } else if constexpr (std::is_function_v<V>) {
    out.name_of(typeid(V));
  } else if constexpr (kIsLambda<V>) {
    out.lambda(text_of_type<V>());
  } else if constexpr (StringLike<V>) {
    write_string(out, value);
  } else if constexpr (WideString<V>) {
    write_wide_string(out, value);
  } else if constexpr (std::is_pointer_v<V>) {
    write_pointer<Fresh, V>(out, value);
  } else if constexpr (std::is_enum_v<V>) {
    if constexpr (StreamableByItself<V, Fresh>)
      write_streamed<Fresh, V>(out, value);
    else
      write_enumerator<Fresh, V>(out, value);
  } else {
    write_object<Fresh, V>(out, value);
  }
}

}  // namespace detail

/// Stands in place of a cell's number where only the type is shown: the code that writes the value does not compile.
inline constexpr int kTypeAlone = -1;

/// Shows `value` as a value of the running cell, behind its label if it has one. Fresh is the number of the cell: an
/// operator<< that a later cell defines is seen by later cells. Local; from any thread.
template <int Fresh = 0, typename T>
void show_here(T& value, std::string_view label = {}) {
  using V = std::remove_cv_t<T>;
  if constexpr (!std::is_base_of_v<std::ios_base, V>) {
    ValueWriter out;
    if constexpr (Fresh == kTypeAlone)
      out.name_of(typeid(V));
    else
      detail::write<Fresh>(out, value);
    out.send(label);
  }
}

/// Shows the value of a cell's last expression, and keeps it for `_`. The compiler calls it, if the
/// expression has a value.
template <int Fresh = 0, typename T>
void show_value(T&& value) {
  show_here<Fresh>(value);
  if constexpr (Fresh != kTypeAlone) detail::keep<T>(value);
}

}  // namespace lockstep
