// Finds the difference between two parts of tensors of the same shape, element by element: how many, where, by how
// much. Local.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>

#include "protocol/json_fields.h"

namespace lockstep::inspect {

struct Tolerance {
  double rtol = 0, atol = 0;
  bool exact() const { return rtol == 0 && atol == 0; }
};

struct Difference {
  int64_t count = 0;  // elements whose values differ (beyond the tolerance, where there is one)
  int64_t zero_signs = 0;  // elements that are 0 and -0
  int64_t nan_payloads = 0;  // elements that are NaN on both sides, with different bits
  int64_t first = -1;  // linear index of the first element of `count`; -1: none
  int64_t first_bits = -1;  // of the first whose bits differ
  double max_abs = 0;  // largest |a - b| of finite elements
  double max_ulp = 0;  // largest distance in units of the last place; of floating-point types
  double squares = 0;  // of a - b, finite elements
};

/// Adds the difference between `mine` and `other` to `difference`. Both have `bytes` bytes, and begin with the element
/// `first_element` of the tensor. Complex numbers differ if one of their parts does.
void compare_elements(c10::ScalarType dtype, const uint8_t* mine, const uint8_t* other, int64_t bytes,
                      int64_t first_element, const Tolerance& tolerance, Difference& difference);

LOCKSTEP_JSON(Difference, count, zero_signs, nan_payloads, first, first_bits, max_abs, max_ulp, squares)

}  // namespace lockstep::inspect
