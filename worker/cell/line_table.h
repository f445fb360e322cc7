// The line table of one loaded cell says which line, of which cell, an address stands for, inlined calls included.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::worker {

struct SourcePlace {
  std::string function;  // as the debug information has it; empty where it says nothing
  bool inlined = false;
  std::string file;
  int line = 0;
};

class LineTable {
 public:
  /// Reads the object at `path`. A file that can't be read gives an empty table.
  explicit LineTable(const std::string& path);
  ~LineTable();

  /// Returns the innermost inlined call first; the function that holds `address` (an offset in the object) comes last.
  std::vector<SourcePlace> lookup(uint64_t address) const;
  /// Returns the symbol that covers `address`, mangled; empty where there is none. Local symbols count, too.
  std::string symbol(uint64_t address) const;
  /// Returns the value of that symbol.
  uint64_t symbol_start(uint64_t address) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::worker
