// How the value of an expression becomes text and JSON. Templates only take a value apart; everything that builds text
// lives in the worker, so that a cell pays little to show something.
//
// What is shown: numbers, strings and enumerators as one would write them, tensors as LibTorch prints them, modules by
// their own printer, containers element by element, anything else with an operator<<, and the name of its type where
// there is nothing better. Expressions of type void and streams (std::cout << x) show nothing.
#pragma once
#include <torch/torch.h>

#include <array>
#include <chrono>
#include <cstdint>
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

namespace lockstep {

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
  void character(uint32_t code);
  void string(std::string_view value);
  void null(std::string_view text);  // nullptr, nullopt
  void tensor(const at::Tensor& value);
  void pointer(const void* value, const std::type_info& pointee);
  void enumerator(int64_t value, const std::type_info& type);
  void duration(double count, int64_t numerator, int64_t denominator);
  void streamed(const void* value, void (*print)(std::ostream&, const void*));
  void name_of(const std::type_info& type);  // of which no more is known

  // {1, 2, 3}, {"a": 1, "b": 2}, (1, "x"): begin, then item() or key() before each element, then end().
  void begin_list();
  void begin_map();
  void begin_tuple();
  bool item();  // false: enough has been shown; count the rest and end
  void key();   // the next two values are a key and what it leads to
  void end(size_t left_out = 0);

  /// Sends what was written as the value of the running cell, after all output that was written before.
  void send();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace detail {

/// Fresh keeps the compiler from going on with what it found before a later cell defined an operator<<.
template <typename T, int Fresh>
concept Streamable = requires(std::ostream& stream, const T& value) { stream << value; };

template <typename T>
concept StringLike = std::convertible_to<const T&, std::string_view> && !std::is_null_pointer_v<T>;

template <typename T>
concept SmartPointer = requires(const T& value) {
  typename T::element_type;
  { value.get() } -> std::convertible_to<const volatile void*>;
  static_cast<bool>(value);
};

template <typename T>
concept TupleLike = requires { std::tuple_size<T>::value; } && !std::ranges::range<T>;

/// LibTorch has an operator<< for containers of the standard library; they are taken apart all the same.
template <typename T>
inline constexpr bool kIsArray = std::is_array_v<T>;
template <typename T, size_t N>
inline constexpr bool kIsArray<std::array<T, N>> = true;
template <typename T>
concept Container =
    std::ranges::range<T> && (kIsArray<std::remove_cv_t<T>> || requires { typename T::allocator_type; });

template <typename T>
concept KeyedItem = requires(const T& value) {  // of torch::OrderedDict
  value.key();
  value.value();
};

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
inline constexpr bool kIsVariant = false;
template <typename... T>
inline constexpr bool kIsVariant<std::variant<T...>> = true;
template <typename T>
inline constexpr bool kIsDuration = false;
template <typename R, typename P>
inline constexpr bool kIsDuration<std::chrono::duration<R, P>> = true;
template <typename T>
inline constexpr bool kIsCharacter =
    std::is_same_v<T, char> || std::is_same_v<T, wchar_t> || std::is_same_v<T, char8_t> ||
    std::is_same_v<T, char16_t> || std::is_same_v<T, char32_t>;

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
  size_t left_out = 0;
  for (auto&& element : range) {
    if (left_out > 0 || !out.item()) {
      ++left_out;
      if constexpr (std::ranges::sized_range<T>) {
        left_out = std::ranges::size(range) - ValueWriter::kMaxElements;
      } else if (left_out < 100 * ValueWriter::kMaxElements) {  // a view may have no end
        continue;
      }
      break;
    }
    if constexpr (std::is_same_v<Element, std::vector<bool>::reference>) {
      out.boolean(static_cast<bool>(element));
    } else if constexpr (KeyedItem<Element>) {
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
void write(ValueWriter& out, T& value) {
  using V = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<V, bool>) {
    out.boolean(value);
  } else if constexpr (kIsCharacter<V>) {
    out.character(static_cast<uint32_t>(static_cast<std::make_unsigned_t<V>>(value)));
  } else if constexpr (std::is_integral_v<V>) {
    if constexpr (std::is_signed_v<V>)
      out.integer(static_cast<int64_t>(value));
    else
      out.natural(static_cast<uint64_t>(value));
  } else if constexpr (std::is_floating_point_v<V>) {
    out.real(static_cast<double>(value), std::numeric_limits<V>::max_digits10);
  } else if constexpr (std::is_same_v<V, at::Tensor>) {
    out.tensor(value);
  } else if constexpr (std::is_null_pointer_v<V>) {
    out.null("nullptr");
  } else if constexpr (StringLike<V>) {
    if constexpr (std::is_pointer_v<V>) {
      if (value == nullptr) return out.null("nullptr");
    }
    out.string(std::string_view(value));
  } else if constexpr (std::is_function_v<std::remove_pointer_t<V>>) {
    out.name_of(typeid(std::remove_pointer_t<V>));
  } else if constexpr (std::is_pointer_v<V>) {
    if (value == nullptr)
      out.null("nullptr");
    else
      out.pointer(const_cast<const void*>(static_cast<const volatile void*>(value)), typeid(std::remove_pointer_t<V>));
  } else if constexpr (SmartPointer<V>) {
    using Pointee = std::remove_cv_t<typename V::element_type>;
    if (!static_cast<bool>(value)) {
      out.null("nullptr");
    } else if constexpr (std::is_void_v<Pointee> || std::is_array_v<typename V::element_type>) {
      out.pointer(value.get(), typeid(Pointee));
    } else {
      write<Fresh>(out, *value);
    }
  } else if constexpr (std::is_base_of_v<torch::detail::ModuleHolderIndicator, V>) {
    if (value.is_empty())
      out.null("nullptr");
    else
      write<Fresh>(out, *value.ptr());
  } else if constexpr (kIsDuration<V>) {
    out.duration(static_cast<double>(value.count()), V::period::num, V::period::den);
  } else if constexpr (std::is_enum_v<V> && (!Streamable<V, Fresh> || std::is_convertible_v<V, int64_t>)) {
    out.enumerator(static_cast<int64_t>(value), typeid(V));
  } else if constexpr (Streamable<V, Fresh> && !Container<V>) {
    out.streamed(std::addressof(value),
                 [](std::ostream& stream, const void* object) { stream << *static_cast<const V*>(object); });
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
  } else if constexpr (std::ranges::range<T>) {
    write_range<Fresh>(out, value);
  } else if constexpr (TupleLike<V>) {
    out.begin_tuple();
    std::apply([&out](auto&... members) { ((out.item(), write<Fresh>(out, members)), ...); }, value);
    out.end();
  } else if constexpr (std::is_polymorphic_v<V>) {
    out.name_of(typeid(value));
  } else {
    out.name_of(typeid(V));
  }
}

}  // namespace detail

/// Shows `value` as a value of the running cell. Local; from any thread. The compiler calls it for the last expression of a
/// cell, if it has a value.
/// Fresh is the number of the cell: an operator<< that a later cell defines is seen by later cells.
template <int Fresh = 0, typename T>
void show_value(T&& value) {
  using V = std::remove_cvref_t<T>;
  if constexpr (!std::is_base_of_v<std::ios_base, V>) {
    ValueWriter out;
    detail::write<Fresh>(out, value);
    out.send();
  }
}

}  // namespace lockstep
