// Says what kind of value a type is, as far as show.h takes values apart by it. Names and concepts only.
//
// Nothing here may instantiate what a user wrote: a question about a type that is an error would be an error of the
// cell.
#pragma once
#include <torch/torch.h>

#include <any>
#include <array>
#include <atomic>
#include <chrono>
#include <compare>
#include <concepts>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <ranges>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace lockstep::detail {

/// Hides the names around this namespace: an operator<< for a type of ours must not be found for what converts to it.
struct Hidden {};
void operator<<(Hidden, Hidden) = delete;

/// Fresh keeps the compiler from going on with what it found before a later cell defined an operator<<.
template <typename T, int Fresh>
concept Streamable = requires(std::ostream& stream, const T& value) { stream << value; };

/// Is true for a type with an operator<< of its own. Numbers, and what converts to them, have the standard library's.
template <typename T, int Fresh>
concept StreamableByItself = requires(std::ostream& stream, const T& value) { operator<<(stream, value); };

template <typename T>
inline constexpr bool kIsCharacter = false;
template <>
inline constexpr bool kIsCharacter<char> = true;
template <>
inline constexpr bool kIsCharacter<wchar_t> = true;
template <>
inline constexpr bool kIsCharacter<char8_t> = true;
template <>
inline constexpr bool kIsCharacter<char16_t> = true;
template <>
inline constexpr bool kIsCharacter<char32_t> = true;

template <typename T>
concept StringLike = std::convertible_to<const T&, std::string_view> && !std::is_null_pointer_v<T>;

/// Is true for text of other characters than char; Unit is the character.
template <typename T, typename Unit>
concept StringOf = std::convertible_to<const T&, std::basic_string_view<Unit>> && !std::is_null_pointer_v<T>;
template <typename T>
concept WideString = StringOf<T, wchar_t> || StringOf<T, char8_t> || StringOf<T, char16_t> || StringOf<T, char32_t>;

template <typename T>
concept SmartPointer = requires(const T& value) {
  typename T::element_type;
  { value.get() } -> std::convertible_to<const volatile void*>;
  static_cast<bool>(value);
};

template <typename T>
concept WeakPointer = requires(const T& value) {
  typename T::element_type;
  { value.lock() } -> SmartPointer;
};

template <typename T>
inline constexpr bool kIsArray = std::is_array_v<T>;
template <typename T, size_t N>
inline constexpr bool kIsArray<std::array<T, N>> = true;
template <typename T>
inline constexpr bool kIsArray<std::initializer_list<T>> = true;
/// LibTorch has an operator<< for containers of the standard library; they are taken apart all the same.
template <typename T>
concept Container = std::ranges::range<T> && (kIsArray<T> || requires { typename T::allocator_type; });

/// Is true for std::stack and its like, whose elements are in a protected member.
template <typename T>
concept Adaptor = !std::ranges::range<T> && requires(const T& value) {
  typename T::container_type;
  value.size();
};

template <typename T>
concept KeyedItem = requires(const T& value) {  // of torch::OrderedDict
  value.key();
  value.value();
};

template <typename T>
concept TupleLike = requires { std::tuple_size<T>::value; } && !std::ranges::range<T>;
template <typename T>
inline constexpr bool kIsTuple = false;
template <typename... T>
inline constexpr bool kIsTuple<std::tuple<T...>> = true;
template <typename A, typename B>
inline constexpr bool kIsTuple<std::pair<A, B>> = true;

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
inline constexpr bool kIsVariant = false;
template <typename... T>
inline constexpr bool kIsVariant<std::variant<T...>> = true;
template <typename T>
inline constexpr bool kIsReference = false;
template <typename T>
inline constexpr bool kIsReference<std::reference_wrapper<T>> = true;
template <typename T>
inline constexpr bool kIsAtomic = false;
template <typename T>
inline constexpr bool kIsAtomic<std::atomic<T>> = true;
template <typename T>
inline constexpr bool kIsDuration = false;
template <typename R, typename P>
inline constexpr bool kIsDuration<std::chrono::duration<R, P>> = true;
template <typename T>
inline constexpr bool kIsTimePoint = false;
template <typename C, typename D>
inline constexpr bool kIsTimePoint<std::chrono::time_point<C, D>> = true;
template <typename T>
inline constexpr bool kIsExample = false;
template <typename D, typename L>
inline constexpr bool kIsExample<torch::data::Example<D, L>> = true;

template <typename T>
concept Ordering = std::same_as<T, std::strong_ordering> || std::same_as<T, std::weak_ordering> ||
                   std::same_as<T, std::partial_ordering>;

/// The compiler writes it as "... [T = (lambda at cell_7.cpp:3:5)]".
template <typename T>
consteval const char* text_of_type() {
  return __PRETTY_FUNCTION__;
}
template <typename T>
consteval bool has_type_of_lambda() {
  return std::string_view(text_of_type<T>()).find("T = (lambda at ") != std::string_view::npos;
}
/// Whether T is the type of a lambda. To ask for its operator<<, or whether it converts, would instantiate the body of
/// a generic one. It is a variable, since `if constexpr` looks into its other branch, too, where Clang has a call in
/// its condition.
template <typename T>
inline constexpr bool kIsLambda = false;
template <typename T>
  requires std::is_class_v<T>
inline constexpr bool kIsLambda<T> = has_type_of_lambda<T>();

}  // namespace lockstep::detail
