// The items of a cell that has run, in source order, each with the steps that the compiler made of it. past_cells.h asks
// which names an item needs and defines. A declaration without a step has its value from the start: a function, a
// class, a macro, a variable with a constant.
#pragma once
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "protocol/compiler_messages.h"
#include "shell/scripts/cpp_items.h"

namespace lockstep::shell {

struct PastItem {
  int first_line = 0;
  std::string code;
  std::multiset<std::string> words;  // of its code, apart from members, parameters and local variables
  std::vector<DefinedName> names;  // whole: ns::f. Those of a namespace are the names in it
  bool is_statement = false;
  std::string assigned;  // the variable of `v = …;`
  bool has_many = false;  // it is a namespace, or several items of a line
  bool adds = false;  // to what its names stand for: a member of a class, a specialisation, a using-declaration
  bool is_unnamed = false;  // it defines what can be used without a name, or what can't be read
  std::vector<size_t> steps;
  std::vector<PastItem> inner;  // of a namespace
};

/// Whether one of the names of an item ends in that of `name`.
bool has_name(const PastItem& item, const std::string& name);

/// Returns the items of `text`, and those of a namespace without steps one by one. Items of a line whose steps can't be
/// told apart are one. Steps of no line belong to the first, which has no text.
std::vector<PastItem> past_items(const std::string& text, const std::vector<protocol::Step>& steps);

}  // namespace lockstep::shell
