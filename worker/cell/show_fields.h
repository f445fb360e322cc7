// Finds the fields of an aggregate and the names of enumerators, which C++20 has no means to ask for. Fields are
// counted by initialising the aggregate in a requires-expression and reached by structured bindings. They are named, as
// enumerators are, by what Clang writes into __PRETTY_FUNCTION__ for a template argument: one instantiation holds all
// names of a type.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace lockstep::detail {

inline constexpr size_t kMostFields = 16;  // an aggregate with more is shown by the name of its type

/// Turns into anything but T itself, which would be a copy of the aggregate.
template <typename T>
struct ValueBut {
  template <typename U>
    requires(!std::is_same_v<U, T>)
  operator U() const;
};
/// Does the same as an object that references can be bound to.
template <typename T>
struct ObjectBut {
  template <typename U>
    requires(!std::is_same_v<U, T>)
  operator U&() const;
};

/// Turns into base classes of T alone.
template <typename T>
struct BaseOf {
  template <typename U>
    requires(std::is_base_of_v<U, T> && !std::is_same_v<U, T>)
  operator U() const;
};

template <typename T, typename Indices>
inline constexpr bool kTakes = false;
template <typename T, size_t... I>
inline constexpr bool kTakes<T, std::index_sequence<I...>> = requires {
  T{(static_cast<void>(I), ValueBut<T>())...};
} || requires { T{(static_cast<void>(I), ObjectBut<T>())...}; };

/// Returns the largest number of initialisers that T takes. An array counts by its elements here.
template <typename T, size_t Count = kMostFields + 1>
consteval size_t count_initialisers() {
  if constexpr (Count == 0 || kTakes<T, std::make_index_sequence<Count>>)
    return Count == 0 ? kMostFields + 1 : Count;
  else
    return count_initialisers<T, Count - 1>();
}

#define LOCKSTEP_LEAD_0
#define LOCKSTEP_LEAD_1 LOCKSTEP_LEAD_0{},
#define LOCKSTEP_LEAD_2 LOCKSTEP_LEAD_1{},
#define LOCKSTEP_LEAD_3 LOCKSTEP_LEAD_2{},
#define LOCKSTEP_LEAD_4 LOCKSTEP_LEAD_3{},
#define LOCKSTEP_LEAD_5 LOCKSTEP_LEAD_4{},
#define LOCKSTEP_LEAD_6 LOCKSTEP_LEAD_5{},
#define LOCKSTEP_LEAD_7 LOCKSTEP_LEAD_6{},
#define LOCKSTEP_LEAD_8 LOCKSTEP_LEAD_7{},
#define LOCKSTEP_LEAD_9 LOCKSTEP_LEAD_8{},
#define LOCKSTEP_LEAD_10 LOCKSTEP_LEAD_9{},
#define LOCKSTEP_LEAD_11 LOCKSTEP_LEAD_10{},
#define LOCKSTEP_LEAD_12 LOCKSTEP_LEAD_11{},
#define LOCKSTEP_LEAD_13 LOCKSTEP_LEAD_12{},
#define LOCKSTEP_LEAD_14 LOCKSTEP_LEAD_13{},
#define LOCKSTEP_LEAD_15 LOCKSTEP_LEAD_14{},
#define LOCKSTEP_LEAD_16 LOCKSTEP_LEAD_15{},

/// Returns the number of structured bindings of T; kMostFields + 1 where there are more, or fields are in a base class.
/// Each `{}` initialises one field, an array too. Where a field has no default (a reference), initialisers are counted.
template <typename T>
consteval size_t count_fields() {
  if constexpr (requires { T{BaseOf<T>()}; }) {
    return kMostFields + 1;
  } else {
#define LOCKSTEP_TRY(count)                                                          \
  if constexpr (!requires { T{LOCKSTEP_LEAD_##count{}}; }) {                         \
    if constexpr (                                                                   \
        requires { T{LOCKSTEP_LEAD_##count ValueBut<T>()}; } ||                      \
        requires { T{LOCKSTEP_LEAD_##count ObjectBut<T>()}; } || !requires { T{}; }) \
      return count_initialisers<T>();                                                \
    else                                                                             \
      return count;                                                                  \
  } else
    LOCKSTEP_TRY(0)
    LOCKSTEP_TRY(1)
    LOCKSTEP_TRY(2)
    LOCKSTEP_TRY(3)
    LOCKSTEP_TRY(4)
    LOCKSTEP_TRY(5)
    LOCKSTEP_TRY(6)
    LOCKSTEP_TRY(7)
    LOCKSTEP_TRY(8)
    LOCKSTEP_TRY(9)
    LOCKSTEP_TRY(10)
    LOCKSTEP_TRY(11)
    LOCKSTEP_TRY(12)
    LOCKSTEP_TRY(13)
    LOCKSTEP_TRY(14)
    LOCKSTEP_TRY(15)
    LOCKSTEP_TRY(16)
    return kMostFields + 1;
#undef LOCKSTEP_TRY
  }
}

#undef LOCKSTEP_LEAD_0
#undef LOCKSTEP_LEAD_1
#undef LOCKSTEP_LEAD_2
#undef LOCKSTEP_LEAD_3
#undef LOCKSTEP_LEAD_4
#undef LOCKSTEP_LEAD_5
#undef LOCKSTEP_LEAD_6
#undef LOCKSTEP_LEAD_7
#undef LOCKSTEP_LEAD_8
#undef LOCKSTEP_LEAD_9
#undef LOCKSTEP_LEAD_10
#undef LOCKSTEP_LEAD_11
#undef LOCKSTEP_LEAD_12
#undef LOCKSTEP_LEAD_13
#undef LOCKSTEP_LEAD_14
#undef LOCKSTEP_LEAD_15
#undef LOCKSTEP_LEAD_16

#define LOCKSTEP_FIELDS_1 f1
#define LOCKSTEP_FIELDS_2 LOCKSTEP_FIELDS_1, f2
#define LOCKSTEP_FIELDS_3 LOCKSTEP_FIELDS_2, f3
#define LOCKSTEP_FIELDS_4 LOCKSTEP_FIELDS_3, f4
#define LOCKSTEP_FIELDS_5 LOCKSTEP_FIELDS_4, f5
#define LOCKSTEP_FIELDS_6 LOCKSTEP_FIELDS_5, f6
#define LOCKSTEP_FIELDS_7 LOCKSTEP_FIELDS_6, f7
#define LOCKSTEP_FIELDS_8 LOCKSTEP_FIELDS_7, f8
#define LOCKSTEP_FIELDS_9 LOCKSTEP_FIELDS_8, f9
#define LOCKSTEP_FIELDS_10 LOCKSTEP_FIELDS_9, f10
#define LOCKSTEP_FIELDS_11 LOCKSTEP_FIELDS_10, f11
#define LOCKSTEP_FIELDS_12 LOCKSTEP_FIELDS_11, f12
#define LOCKSTEP_FIELDS_13 LOCKSTEP_FIELDS_12, f13
#define LOCKSTEP_FIELDS_14 LOCKSTEP_FIELDS_13, f14
#define LOCKSTEP_FIELDS_15 LOCKSTEP_FIELDS_14, f15
#define LOCKSTEP_FIELDS_16 LOCKSTEP_FIELDS_15, f16
#define LOCKSTEP_PLACES_1 &f1
#define LOCKSTEP_PLACES_2 LOCKSTEP_PLACES_1, &f2
#define LOCKSTEP_PLACES_3 LOCKSTEP_PLACES_2, &f3
#define LOCKSTEP_PLACES_4 LOCKSTEP_PLACES_3, &f4
#define LOCKSTEP_PLACES_5 LOCKSTEP_PLACES_4, &f5
#define LOCKSTEP_PLACES_6 LOCKSTEP_PLACES_5, &f6
#define LOCKSTEP_PLACES_7 LOCKSTEP_PLACES_6, &f7
#define LOCKSTEP_PLACES_8 LOCKSTEP_PLACES_7, &f8
#define LOCKSTEP_PLACES_9 LOCKSTEP_PLACES_8, &f9
#define LOCKSTEP_PLACES_10 LOCKSTEP_PLACES_9, &f10
#define LOCKSTEP_PLACES_11 LOCKSTEP_PLACES_10, &f11
#define LOCKSTEP_PLACES_12 LOCKSTEP_PLACES_11, &f12
#define LOCKSTEP_PLACES_13 LOCKSTEP_PLACES_12, &f13
#define LOCKSTEP_PLACES_14 LOCKSTEP_PLACES_13, &f14
#define LOCKSTEP_PLACES_15 LOCKSTEP_PLACES_14, &f15
#define LOCKSTEP_PLACES_16 LOCKSTEP_PLACES_15, &f16

/// Calls `visit` with all fields of `value`.
template <size_t Count, typename T, typename Visit>
void visit_fields(const T& value, Visit&& visit) {
#define LOCKSTEP_VISIT(count)                      \
  if constexpr (Count == count) {                  \
    const auto& [LOCKSTEP_FIELDS_##count] = value; \
    visit(LOCKSTEP_FIELDS_##count);                \
  }
  LOCKSTEP_VISIT(1);
  LOCKSTEP_VISIT(2);
  LOCKSTEP_VISIT(3);
  LOCKSTEP_VISIT(4);
  LOCKSTEP_VISIT(5);
  LOCKSTEP_VISIT(6);
  LOCKSTEP_VISIT(7);
  LOCKSTEP_VISIT(8);
  LOCKSTEP_VISIT(9);
  LOCKSTEP_VISIT(10);
  LOCKSTEP_VISIT(11);
  LOCKSTEP_VISIT(12);
  LOCKSTEP_VISIT(13);
  LOCKSTEP_VISIT(14);
  LOCKSTEP_VISIT(15);
  LOCKSTEP_VISIT(16);
#undef LOCKSTEP_VISIT
}

#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wenum-constexpr-conversion"  // values that are no enumerators are tried on purpose
#pragma clang diagnostic ignored "-Wundefined-var-template"  // kNowhere is named and never used
#pragma clang diagnostic ignored "-Wundefined-internal"

/// Its text ends with the arguments: "... [V = <Colour::red, (Colour)1>]".
template <auto... V>
consteval const char* names_of() {
  return __PRETTY_FUNCTION__;
}

template <typename T>
struct Holder {
  T value;
};
template <typename T>
extern const Holder<T> kNowhere;

/// Ends with "<&kNowhere.value.x, &kNowhere.value.y>]"; empty where a field has no address (a bit-field, a reference).
template <typename T, size_t Count>
consteval const char* field_names() {
#define LOCKSTEP_NAMES(count)                                                                                    \
  if constexpr (Count == count) {                                                                                \
    const auto& [LOCKSTEP_FIELDS_##count] = kNowhere<T>.value;                                                   \
    if constexpr (requires { names_of<LOCKSTEP_PLACES_##count>(); }) return names_of<LOCKSTEP_PLACES_##count>(); \
  }
  LOCKSTEP_NAMES(1);
  LOCKSTEP_NAMES(2);
  LOCKSTEP_NAMES(3);
  LOCKSTEP_NAMES(4);
  LOCKSTEP_NAMES(5);
  LOCKSTEP_NAMES(6);
  LOCKSTEP_NAMES(7);
  LOCKSTEP_NAMES(8);
  LOCKSTEP_NAMES(9);
  LOCKSTEP_NAMES(10);
  LOCKSTEP_NAMES(11);
  LOCKSTEP_NAMES(12);
  LOCKSTEP_NAMES(13);
  LOCKSTEP_NAMES(14);
  LOCKSTEP_NAMES(15);
  LOCKSTEP_NAMES(16);
#undef LOCKSTEP_NAMES
  return "";
}

#undef LOCKSTEP_FIELDS_1
#undef LOCKSTEP_FIELDS_2
#undef LOCKSTEP_FIELDS_3
#undef LOCKSTEP_FIELDS_4
#undef LOCKSTEP_FIELDS_5
#undef LOCKSTEP_FIELDS_6
#undef LOCKSTEP_FIELDS_7
#undef LOCKSTEP_FIELDS_8
#undef LOCKSTEP_FIELDS_9
#undef LOCKSTEP_FIELDS_10
#undef LOCKSTEP_FIELDS_11
#undef LOCKSTEP_FIELDS_12
#undef LOCKSTEP_FIELDS_13
#undef LOCKSTEP_FIELDS_14
#undef LOCKSTEP_FIELDS_15
#undef LOCKSTEP_FIELDS_16
#undef LOCKSTEP_PLACES_1
#undef LOCKSTEP_PLACES_2
#undef LOCKSTEP_PLACES_3
#undef LOCKSTEP_PLACES_4
#undef LOCKSTEP_PLACES_5
#undef LOCKSTEP_PLACES_6
#undef LOCKSTEP_PLACES_7
#undef LOCKSTEP_PLACES_8
#undef LOCKSTEP_PLACES_9
#undef LOCKSTEP_PLACES_10
#undef LOCKSTEP_PLACES_11
#undef LOCKSTEP_PLACES_12
#undef LOCKSTEP_PLACES_13
#undef LOCKSTEP_PLACES_14
#undef LOCKSTEP_PLACES_15
#undef LOCKSTEP_PLACES_16

/// Names of these values are asked for: -8 to 127, and powers of two above. The worker (show.cpp) walks the same list.
inline constexpr size_t kEnumeratorsTried = 136 + 56;
constexpr int64_t enumerator_tried(size_t i) {
  return i < 136 ? static_cast<int64_t>(i) - 8 : int64_t{1} << (i - 136 + 7);
}

template <typename E, size_t... I>
consteval const char* enumerator_names(std::index_sequence<I...>) {
  return names_of<__builtin_bit_cast(E, static_cast<std::underlying_type_t<E>>(enumerator_tried(I)))...>();
}
#pragma clang diagnostic pop
#endif

}  // namespace lockstep::detail
