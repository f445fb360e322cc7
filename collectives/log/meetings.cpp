#include "collectives/log/meetings.h"

#include <atomic>

namespace lockstep::dist {
namespace {

std::atomic<int64_t> g_meetings = 0;
std::atomic<int> g_makes_group = 0;  // scopes may nest
std::atomic<bool> g_rejoins = false;

}  // namespace

int64_t meetings() { return g_meetings.load(std::memory_order_relaxed); }

void note_meeting() {
  if (g_makes_group.load(std::memory_order_relaxed) == 0) g_meetings.fetch_add(1, std::memory_order_relaxed);
}

void MakesGroup::begin() { ++g_makes_group; }
void MakesGroup::end() { --g_makes_group; }

bool is_rejoining() { return g_rejoins.load(std::memory_order_relaxed); }

Rejoining::Rejoining() { g_rejoins = true; }
Rejoining::~Rejoining() { g_rejoins = false; }

}  // namespace lockstep::dist
