// Counts how often this process has met other ranks, and knows whether it may: a process that replaces a lost rank runs
// cells of that rank again before it is connected to the others. What met others then is not run again; groups and
// wrappers are made without them, and the regroup that follows connects them.
#pragma once
#include <cstdint>

namespace lockstep::dist {

/// Returns how many collectives, messages and inspections of other ranks this process has begun, apart from those
/// within a MakesGroup. From any thread.
int64_t meetings();
/// Counts one more. From any thread.
void note_meeting();

/// While it lives, this process makes a group or a wrapper: what it says to the others there is left out when it
/// rejoins.
class MakesGroup {
 public:
  MakesGroup() { begin(); }
  ~MakesGroup() { end(); }
  MakesGroup(const MakesGroup&) = delete;
  MakesGroup& operator=(const MakesGroup&) = delete;
  static void begin();
  static void end();
};

/// Whether this process runs cells again, unconnected.
bool is_rejoining();

/// While it lives, this process does so. It is made on the run thread.
class Rejoining {
 public:
  Rejoining();
  ~Rejoining();
  Rejoining(const Rejoining&) = delete;
  Rejoining& operator=(const Rejoining&) = delete;
};

}  // namespace lockstep::dist
